// Routes and neighbours: searched by the router where it can, read as they come, and shown up to a number that a browser bears.

import { ask, rowsOf } from './api.js';
import { full, make, short, Table, write } from './dom.js';

/** The most rows that are shown. */
const MOST = 1000;
/** The time from the last key to the search, in milliseconds. */
const PAUSE = 250;
/** How often a long search says how far it is, in milliseconds: it may be read aloud. */
const SAY_EVERY = 1000;

const ADDRESS = /^(\d+(\.\d+){3}|[\da-f]*:[\da-f:.]*)$/i;
const PREFIX = /^(\d+(\.\d+){3}|[\da-f]*:[\da-f:.]*)\/\d+$/i;

class Search {
  /** `view` is the section's id; the other parts are told apart in `routes` and `neighbours`. */
  constructor(history, view, { fields, hint, titles, cells, query }) {
    Object.assign(this, { history, view, cells, query });
    this.inputs = {
      text: make('input', {
        type: 'search',
        name: 'text',
        placeholder: hint,
        autocomplete: 'off',
        spellcheck: false,
      }),
    };
    const labels = [make('label', { className: 'wide' }, 'Search', this.inputs.text)];
    for (const [name, { title, options, kind }] of Object.entries(fields)) {
      this.inputs[name] = options
        ? make('select', { name })
        : make('input', { name, type: kind ?? 'text', min: 0, size: 8 });
      if (options)
        this.inputs[name].append(...options.map(([value, text]) => make('option', { value }, text)));
      labels.push(make('label', {}, title, this.inputs[name]));
    }
    this.form = make('form', { className: 'search', role: 'search' }, ...labels);
    this.status = make('p', { role: 'status', className: 'muted' });
    this.answer = make('p', { className: 'panel', hidden: true });
    this.table = new Table(titles[0], titles.slice(1), 'Nothing found.');
    document.getElementById(view).append(this.form, this.status, this.answer, this.table.node);
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.run();
    });
    this.form.addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.run(), PAUSE);
    });
  }

  /** Is called when the view is opened: what is shown would be old. */
  open() {
    this.run();
  }

  /** Is called when another view is opened: nobody waits for the rows. */
  close() {
    this.reading?.abort();
  }

  show() {
    // The interfaces that can be chosen are the ports.
    const names = this.history.last.ports.map((port) => port.name);
    const select = this.inputs.interface;
    if (select.options.length !== names.length + 1) {
      const chosen = select.value;
      select.replaceChildren(...['', ...names].map((name) => make('option', { value: name }, name || 'all')));
      select.value = chosen;
    }
  }

  async run() {
    clearTimeout(this.timer);
    this.reading?.abort();
    const reading = new AbortController();
    this.reading = reading;
    const values = Object.fromEntries(
      Object.entries(this.inputs).map(([name, input]) => [name, input.value.trim()]),
    );
    const {
      what = this.view,
      filter,
      matches = () => true,
      unpack = (rows) => rows,
      say,
    } = this.query(values);
    write(this.status, 'Searching …');
    try {
      this.answer.hidden = true;
      this.answer.replaceChildren();
      let [shown, read, hasMore, said] = [0, 0, false, Date.now()];
      const body = await ask(what, filter, reading.signal);
      // What was there stays until the first rows come.
      let isFirst = true;
      for await (const rows of rowsOf(body)) {
        if (this.reading !== reading) return;
        const found = unpack(rows).filter(matches);
        if (say) this.answer.append(...rows.map((row) => make('span', {}, say(row))));
        this.answer.hidden = !this.answer.firstChild;
        const room = MOST - shown;
        const cells = found.slice(0, room).map(this.cells);
        if (isFirst) this.table.fill(cells);
        else this.table.add(cells);
        [isFirst, shown, read, hasMore] = [
          false,
          shown + cells.length,
          read + rows.length,
          found.length > room,
        ];
        if (hasMore) break;
        if (Date.now() - said > SAY_EVERY) {
          said = Date.now();
          write(this.status, `${full(shown)} found, ${short(read)} read …`);
        }
      }
      const all = hasMore
        ? `The first ${full(shown)} are shown; there are more. Search for less of them.`
        : `${full(shown)} found.`;
      write(this.status, all);
    } catch (error) {
      if (this.reading !== reading || error.name === 'AbortError') return;
      write(this.status, `The search failed: ${error.message}`);
      this.table.fill([]);
    } finally {
      // What was not read need not be sent.
      reading.abort();
    }
  }
}

/** Returns a filter of rows in whose JSON a text stands. */
function containing(text) {
  const small = text.toLowerCase();
  return (row) => !small || JSON.stringify(Object.values(row)).toLowerCase().includes(small);
}

const FAMILIES = {
  title: 'Family',
  options: [
    ['', 'both'],
    ['ipv4', 'IPv4'],
    ['ipv6', 'IPv6'],
  ],
};
const INTERFACES = { title: 'Interface', options: [['', 'all']] };

/** The view of routes. */
export function routes(history) {
  const path = ({ gateway, interface: device, weight, is_usable: isUsable }, _, { length }) =>
    [gateway && `via ${gateway}`, device, length > 1 && `weight ${weight}`, !isUsable && '(down)']
      .filter(Boolean)
      .join(' ');
  return new Search(history, 'routes', {
    hint: 'prefix, address or text',
    fields: {
      family: FAMILIES,
      protocol: { title: 'Protocol' },
      interface: INTERFACES,
      table: { title: 'Table', kind: 'number' },
    },
    titles: [
      'Routes',
      'prefix',
      'paths',
      'kind',
      'protocol',
      'metric#',
      'table#',
      'in force',
      'forwarded by',
    ],
    cells: (row) => [
      row.prefix,
      row.paths.map(path).join(', '),
      row.kind,
      row.protocol,
      String(row.metric),
      String(row.table),
      row.is_in_force ? 'yes' : 'no',
      row.is_fast ? 'workers' : 'Linux',
    ],
    query: ({ text, ...fields }) => {
      if (PREFIX.test(text)) return { filter: { ...fields, within: text } };
      if (!ADDRESS.test(text)) return { filter: fields, matches: containing(text) };
      // What the workers do with packets to an address, and by which route.
      return {
        what: 'route',
        filter: { address: text, table: fields.table },
        unpack: (rows) => rows.map((row) => row.route).filter(Boolean),
        say: ({ address, table, decision }) => `Table ${table}, ${address}: ${decision}`,
      };
    },
  });
}

/** The view of neighbours. */
export function neighbours(history) {
  return new Search(history, 'neighbours', {
    hint: 'address, MAC address or state',
    fields: { family: FAMILIES, interface: INTERFACES },
    titles: ['Neighbours', 'address', 'interface', 'MAC address', 'state'],
    cells: (row) => [row.address, row.interface, row.mac ?? '–', row.state],
    query: ({ text, ...fields }) => ({ filter: fields, matches: containing(text) }),
  });
}
