// Asks the router's API, and reads the rows of its answers.

/** Asks the API; throws what it answers in the place of rows. */
export async function ask(what, query, signal) {
  const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  const answer = await fetch(`api/v1/${what}?${words}`, { signal });
  if (!answer.ok) {
    const { error } = await answer.json().catch(() => ({}));
    throw new Error(error ?? `the router answered ${answer.status}`);
  }
  return answer.body;
}

/** Asks for what is one object. */
export async function askOnce(what) {
  return new Response(await ask(what, {})).json();
}

/** Yields the rows of an answer, those together that came together. */
export async function* rowsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? '')).split('\n');
    rest = done ? '' : lines.pop();
    yield lines.filter(Boolean).map((line) => JSON.parse(line));
    if (done) return;
  }
}
