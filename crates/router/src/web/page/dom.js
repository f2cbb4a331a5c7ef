// What all views need: numbers with units, and nodes whose text is only ever text.

const PREFIXES = ['', 'k', 'M', 'G', 'T', 'P', 'E'];

/** Returns a number with 3 significant digits and a prefix of its unit; whole numbers below 1000 as they are. */
export function short(value, unit = '') {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  let [scaled, power] = [value, 0];
  // 999.9 would be written as 1000.
  while (Math.abs(scaled) >= (Number.isInteger(scaled) ? 1000 : 999.5) && power < PREFIXES.length - 1) {
    [scaled, power] = [scaled / 1000, power + 1];
  }
  const digits = String(Number(scaled.toPrecision(3)));
  if (unit === 'bit/s') return `${digits} ${PREFIXES[power]}${unit}`;
  return digits + PREFIXES[power] + (/^\w/.test(unit) ? ' ' : '') + unit;
}

/** Returns all digits of a number, in groups of three. */
export function full(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return 'not known';
  return value.toLocaleString('en-GB', { maximumFractionDigits: 20 });
}

/** Returns a share of 0 to 1 in per cent. */
export function percent(share) {
  return `${Number((100 * share).toPrecision(3))} %`;
}

/** Returns a time in its two largest units. */
export function duration(seconds) {
  const units = [
    ['d', 86400],
    ['h', 3600],
    ['min', 60],
    ['s', 1],
  ];
  let rest = Math.floor(seconds);
  const parts = units.map(([unit, size]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return [count, unit];
  });
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return '0 s';
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map((part) => part.join(' '))
    .join(' ');
}

/** Makes an element; children are nodes or text. Properties with a dash are attributes. */
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes('-') || name === 'role') node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';

/** Makes an element of SVG with these attributes. */
export function draw(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  set(node, attributes);
  node.append(...children);
  return node;
}

/** Sets attributes, those that differ alone. */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

/** Writes text where it differs, so that what a reader has selected stays selected. */
export function write(node, text, title) {
  if (node.textContent !== text) node.textContent = text;
  if (title !== undefined && node.getAttribute('title') !== title) node.setAttribute('title', title);
}

/** Writes a number into `<data>`: short as text, in full as title, as it is as value. */
export function writeNumber(node, value, unit = '') {
  write(node, short(value, unit), `${full(value)} ${unit}`.trim());
  set(node, { value: value ?? '' });
}

/** A cell's text and how it is shown; views make rows of these. */
export const number = (value, unit) => ({ value, unit, isNumber: true });

function fillCell(node, cell) {
  if (cell?.isNumber) {
    if (node.firstChild?.nodeName !== 'DATA') node.replaceChildren(make('data'));
    writeNumber(node.firstChild, cell.value, cell.unit);
  } else if (cell instanceof Node) {
    if (node.firstChild !== cell) node.replaceChildren(cell);
  } else {
    write(node, cell ?? '');
  }
}

/** A table. A column whose title ends with '#' has numbers. */
export class Table {
  constructor(caption, titles, nothing) {
    this.isNumber = titles.map((title) => title.endsWith('#'));
    const heads = titles.map((title, at) => {
      const head = make('th', { scope: 'col' }, title.replace(/#$/, ''));
      if (this.isNumber[at]) head.className = 'number';
      return head;
    });
    this.body = make('tbody');
    const table = make(
      'table',
      {},
      make('caption', { className: 'hidden' }, caption),
      make('thead', {}, make('tr', {}, ...heads)),
      this.body,
    );
    this.scroll = make(
      'div',
      { className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': caption },
      table,
    );
    this.hint = make('p', { className: 'hint muted small', hidden: true });
    this.nothing = make('p', { className: 'nothing' }, nothing);
    this.node = make('div', {}, this.hint, this.scroll, this.nothing);
    this.heads = heads;
    this.scroll.addEventListener('scroll', () => this.showHint());
    // The table grows with its cells, what is seen of it with the window.
    const observer = new ResizeObserver(() => this.showHint());
    observer.observe(this.scroll);
    observer.observe(table);
    this.fill([]);
  }

  row(cells) {
    const row = make('tr');
    cells.forEach((cell, at) => {
      const node = make('td', this.isNumber[at] ? { className: 'number' } : {});
      fillCell(node, cell);
      row.append(node);
    });
    return row;
  }

  /** Counts the columns that are not seen as a whole. */
  showHint() {
    const seen = this.scroll.getBoundingClientRect();
    const isHidden = ({ left, right }) => left < seen.left - 1 || right > seen.right + 1;
    const count = this.heads.filter((head) => isHidden(head.getBoundingClientRect())).length;
    const columns = `${count} column${count === 1 ? '' : 's'}`;
    write(this.hint, `${columns} hidden; scroll sideways, turn the device or widen the window`);
    this.hint.hidden = count === 0;
  }

  /** Shows these rows in the place of those before. */
  fill(rows) {
    const { body } = this;
    while (body.rows.length > rows.length) body.lastChild.remove();
    rows.forEach((cells, at) => {
      if (at >= body.rows.length) body.append(this.row(cells));
      else cells.forEach((cell, column) => fillCell(body.rows[at].cells[column], cell));
    });
    this.showNothing();
  }

  /** Adds rows behind those that are there. */
  add(rows) {
    const fragment = document.createDocumentFragment();
    fragment.append(...rows.map((cells) => this.row(cells)));
    this.body.append(fragment);
    this.showNothing();
  }

  showNothing() {
    this.nothing.hidden = this.body.rows.length > 0;
    this.scroll.hidden = !this.nothing.hidden;
  }
}

/** Keeps a child of `parent` for each key, in the order of the keys; `create` makes those that are new. */
export class Keyed {
  constructor(parent, create) {
    Object.assign(this, { parent, create, parts: new Map() });
  }

  /** Returns the parts of the keys. A part's node is its property `node`. */
  of(keys) {
    const parts = new Map(keys.map((key) => [key, this.parts.get(key) ?? this.create(key)]));
    for (const [key, part] of this.parts) if (!parts.has(key)) part.node.remove();
    [...parts.values()].forEach((part, at) => {
      if (this.parent.children[at] !== part.node)
        this.parent.insertBefore(part.node, this.parent.children[at] ?? null);
    });
    this.parts = parts;
    return parts;
  }
}
