// Lays a directed graph out in layers: every node behind all that lead to it, few crossings, edges as straight as that allows.

const SWEEPS = 16;

/** Returns the edges without self-loops, those that close a cycle turned round, so that none is left. */
function withoutCycles(nodes, edges) {
  const from = new Map(nodes.map((node) => [node, []]));
  for (const edge of edges) if (edge.from !== edge.to) from.get(edge.from).push(edge);
  const [onPath, done, straight] = [new Set(), new Set(), []];
  const visit = (node) => {
    onPath.add(node);
    for (const edge of from.get(node)) {
      const closes = onPath.has(edge.to);
      straight.push({ edge, isTurned: closes, from: closes ? edge.to : node, to: closes ? node : edge.to });
      if (!closes && !done.has(edge.to)) visit(edge.to);
    }
    onPath.delete(node);
    done.add(node);
  };
  // What nothing leads to first, so that edges keep their direction where they can.
  const led = new Set(edges.map((edge) => edge.to));
  for (const node of [...nodes.filter((node) => !led.has(node)), ...nodes]) if (!done.has(node)) visit(node);
  return straight;
}

/** Returns the layer of each node: the longest way to it; a node that nothing leads to stands right before what it leads to. */
function layersOf(nodes, edges) {
  const [waiting, layer, next] = [new Map(), new Map(), new Map()];
  for (const node of nodes) ([waiting, layer].forEach((map) => map.set(node, 0)), next.set(node, []));
  for (const { from, to } of edges) {
    waiting.set(to, waiting.get(to) + 1);
    next.get(from).push(to);
  }
  const sources = nodes.filter((node) => waiting.get(node) === 0);
  for (const ready = [...sources]; ready.length > 0;) {
    const node = ready.pop();
    for (const to of next.get(node)) {
      layer.set(to, Math.max(layer.get(to), layer.get(node) + 1));
      waiting.set(to, waiting.get(to) - 1);
      if (waiting.get(to) === 0) ready.push(to);
    }
  }
  for (const node of sources) {
    const nearest = Math.min(...next.get(node).map((to) => layer.get(to)));
    if (Number.isFinite(nearest)) layer.set(node, nearest - 1);
  }
  return layer;
}

/** Returns how often edges between two layers cross; `ends` are the places of their ends. */
function crossings(ends) {
  let count = 0;
  ends.forEach(([a, b], at) => {
    for (const [c, d] of ends.slice(at + 1)) if ((a - c) * (b - d) < 0) count += 1;
  });
  return count;
}

/** Puts points of a layer as near to the places wanted as their breadths allow. */
function spread(layer, wanted, apart) {
  // With the distances taken off the places must only not fall: neighbours that would are put at their mean.
  let distance = 0;
  const runs = [];
  const distances = layer.map((point, at) => {
    if (at > 0) distance += (layer[at - 1].breadth + point.breadth) / 2 + apart;
    return distance;
  });
  layer.forEach((_, at) => {
    let run = { sum: wanted[at] - distances[at], count: 1 };
    while (runs.length > 0 && runs.at(-1).sum / runs.at(-1).count > run.sum / run.count) {
      const before = runs.pop();
      run = { sum: before.sum + run.sum, count: before.count + run.count };
    }
    runs.push(run);
  });
  const means = runs.flatMap(({ sum, count }) => Array(count).fill(sum / count));
  layer.forEach((point, at) => {
    point.place = means[at] + distances[at];
  });
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * Lays out nodes (their names), each so broad as `breadth` says, `apart` from the next of its layer, and edges ({from, to}).
 *
 * Returns `places`, a map of each node's {layer, place}, the place being that of its middle; `ways`, a map of each edge's
 * [{layer, place}] from its begin to its end; the number of layers; and how broad all is.
 */
export function layOut(nodes, edges, breadth, apart) {
  const straight = withoutCycles(nodes, edges);
  const layerOf = layersOf(nodes, straight);
  // An edge over several layers is a chain of points, one a layer.
  const layers = Array.from({ length: Math.max(-1, ...layerOf.values()) + 1 }, () => []);
  const points = new Map();
  const point = (layer, broad = 0) => {
    const made = { layer, breadth: broad, place: 0, before: [], behind: [] };
    layers[layer].push(made);
    return made;
  };
  // The order in which they are met is a good one to begin with.
  for (const name of new Set([...straight.flatMap(({ from, to }) => [from, to]), ...nodes])) {
    points.set(name, point(layerOf.get(name), breadth(name)));
  }
  const ways = new Map(
    straight.map(({ edge, isTurned, from, to }) => {
      const [begin, end] = [points.get(from), points.get(to)];
      const chain = [begin];
      for (let layer = begin.layer + 1; layer < end.layer; layer += 1) chain.push(point(layer));
      chain.push(end);
      chain.slice(1).forEach((next, at) => {
        chain[at].behind.push(next);
        next.before.push(chain[at]);
      });
      return [edge, isTurned ? chain.reverse() : chain];
    }),
  );

  const number = (layer) =>
    layer.forEach((point, at) => {
      point.place = at;
    });
  layers.forEach(number);
  const crossed = () =>
    layers.reduce(
      (sum, layer) =>
        sum + crossings(layer.flatMap((point) => point.behind.map((next) => [point.place, next.place]))),
      0,
    );
  let [best, fewest] = [layers.map((layer) => [...layer]), crossed()];
  for (let sweep = 0; sweep < SWEEPS && fewest > 0; sweep += 1) {
    const side = sweep % 2 === 0 ? 'before' : 'behind';
    for (const layer of side === 'before' ? layers : [...layers].reverse()) {
      const centre = new Map(
        layer.map((point) => [
          point,
          point[side].length ? mean(point[side].map((other) => other.place)) : point.place,
        ]),
      );
      layer.sort((a, b) => centre.get(a) - centre.get(b));
      number(layer);
    }
    const count = crossed();
    if (count < fewest) [best, fewest] = [layers.map((layer) => [...layer]), count];
  }

  best.forEach((layer) => {
    number(layer);
    spread(
      layer,
      layer.map(() => 0),
      apart,
    );
  });
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const side = sweep % 2 === 0 ? 'before' : 'behind';
    for (const layer of side === 'before' ? best : [...best].reverse()) {
      const wanted = layer.map((point) =>
        point[side].length ? mean(point[side].map((other) => other.place)) : point.place,
      );
      spread(layer, wanted, apart);
    }
  }
  const all = best.flat();
  const least = Math.min(...all.map((point) => point.place - point.breadth / 2));
  for (const point of all) point.place -= least;
  return {
    places: points,
    ways,
    layers: best.length,
    breadth: Math.max(0, ...all.map((point) => point.place + point.breadth / 2)),
  };
}
