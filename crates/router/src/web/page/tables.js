// The tables of features, of queues and of the mirror of Linux's state: whatever columns their rows have.

import { full, Keyed, make, Table } from './dom.js';

const words = (name) => name.replaceAll('_', ' ');

/** Returns a value of any kind as text. */
function text(value) {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'number') return full(value);
  if (Array.isArray(value)) return value.map(text).join(', ');
  if (typeof value === 'object')
    return Object.entries(value)
      .map(([name, part]) => `${words(name)}: ${text(part)}`)
      .join(', ');
  return String(value);
}

class AnyTable {
  constructor(name) {
    this.name = name;
    this.node = make('div', {}, make('h2', {}, words(name)));
  }

  show(rows) {
    const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    const isNumber = columns.map((column) => rows.some((row) => typeof row[column] === 'number'));
    const titles = columns.map((column, at) => words(column) + (isNumber[at] ? '#' : ''));
    if (!this.table || titles.join('\n') !== this.titles) {
      this.titles = titles.join('\n');
      this.table?.node.remove();
      this.table = new Table(words(this.name), titles, 'It has no rows.');
      this.node.append(this.table.node);
    }
    // All digits: a number here may be a name, as that of a rule.
    this.table.fill(rows.map((row) => columns.map((column) => text(row[column]))));
  }
}

export class Tables {
  constructor(history) {
    this.history = history;
    this.parts = new Keyed(
      document.getElementById('tables').appendChild(make('div')),
      (name) => new AnyTable(name),
    );
  }

  show() {
    const { features, queues, netlink } = this.history.last;
    const tables = { ...features, queues, netlink };
    for (const [name, table] of this.parts.of(Object.keys(tables))) table.show(tables[name]);
  }
}
