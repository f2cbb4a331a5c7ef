// The overview: the router, its ports, its workers, and what it drops and punts most.

import { askOnce } from './api.js';
import { Chart } from './chart.js';
import { duration, full, Keyed, make, number, percent, set, short, Table, write, writeNumber } from './dom.js';

/** How many drops and punts are shown. */
const MOST = 8;
const UNIT_NAMES = { bits_per_second: 'bit/s', packets_per_second: 'packets/s' };
const WAYS = { rx: 'Received', tx: 'Sent' };
/** The time between two questions for flows, in milliseconds: the router samples for a second, and pauses for four. */
const ASK_EVERY = 5500;
const COUNTS = ['packets', 'bytes', 'dropped', 'errors'];

class PortCard {
  constructor(name) {
    const datum = () => make('data');
    this.link = make('span', { className: 'link' });
    this.driver = make('span', { className: 'muted' });
    this.facts = make('p', { className: 'muted small' });
    this.ways = make('p', { className: 'muted small' });
    this.path = make('p', { className: 'muted small' });
    this.chart = new Chart(name);
    this.now = {};
    this.counts = {};
    const figures = Object.entries(WAYS).map(([way, title]) => {
      this.now[way] = { bits_per_second: datum(), packets_per_second: datum() };
      const { bits_per_second: bits, packets_per_second: packets } = this.now[way];
      bits.className = 'figure';
      return make('div', { className: way }, make('span', { className: 'key' }, title), bits, packets);
    });
    const rows = Object.entries(WAYS).map(([way, title]) => {
      this.counts[way] = Object.fromEntries(COUNTS.map((count) => [count, datum()]));
      const cells = Object.entries(this.counts[way]).map(([count, node]) => {
        node.dataset.count = `${way}.${count}`;
        return make('td', { className: 'number' }, node);
      });
      return make('tr', {}, make('th', { scope: 'row' }, title), ...cells);
    });
    this.toLinux = datum();
    this.toLinux.dataset.count = 'to_linux';
    const heads = ['', ...COUNTS].map((title) =>
      make('th', { scope: 'col', className: title && 'number' }, title),
    );
    const last = make(
      'tr',
      {},
      make('th', { scope: 'row' }, 'To Linux'),
      make('td', { className: 'number' }, this.toLinux),
    );
    last.append(...COUNTS.slice(1).map(() => make('td')));
    const table = make(
      'table',
      { className: 'counts' },
      make('caption', { className: 'hidden' }, `Counts of ${name}`),
      make('thead', {}, make('tr', {}, ...heads)),
      make('tbody', {}, ...rows, last),
    );
    this.node = make(
      'article',
      { className: 'card' },
      make('div', { className: 'card-head' }, make('h3', {}, name), this.link, this.driver),
      this.facts,
      make('div', { className: 'figures' }, ...figures),
      this.chart.node,
      table,
      this.ways,
      this.path,
    );
    this.node.dataset.port = name;
  }

  show(port, points, unit) {
    const state = !port.is_up ? 'switched off' : port.has_carrier ? 'up' : 'no carrier';
    const isUp = state === 'up';
    write(this.link, `${isUp ? '●' : '✕'} ${state}`);
    this.link.classList.toggle('down', !isUp);
    write(this.driver, [port.driver || 'VLAN', port.mode].filter(Boolean).join(' · '), port.spec);
    write(this.facts, [...port.addresses, port.mac, `MTU ${port.mtu}`].filter(Boolean).join(' · '));
    for (const way of Object.keys(WAYS)) {
      for (const [name, node] of Object.entries(this.now[way]))
        writeNumber(node, port[way][name], UNIT_NAMES[name]);
      for (const [name, node] of Object.entries(this.counts[way])) {
        writeNumber(node, port[way][name]);
        node.classList.toggle('bad', (name === 'dropped' || name === 'errors') && port[way][name] > 0);
      }
    }
    writeNumber(this.toLinux, port.to_linux);
    const all = port.in_kernel + port.by_workers + port.to_linux;
    const share = (packets) => percent(packets / all);
    const because = port.left_because ? ` (${port.left_because})` : '';
    write(
      this.ways,
      all > 0
        ? `Received packets: in the kernel ${share(port.in_kernel)}, by workers ${share(port.by_workers)}, ` +
            `by Linux ${share(port.to_linux)}${because}`
        : '',
    );
    write(this.path, port.path ? `Path: ${port.path}` : '');
    this.chart.show(points, unit, UNIT_NAMES[unit]);
  }
}

/** A bar of a share of time. */
class Bar {
  constructor() {
    this.fill = make('span', { className: 'fill' });
    this.text = make('span', { className: 'share' });
    this.node = make(
      'span',
      { className: 'bar-cell' },
      make('span', { className: 'bar' }, this.fill),
      this.text,
    );
  }

  show(share) {
    this.fill.style.width = `${Math.min(100 * share, 100)}%`;
    this.fill.classList.toggle('full', share > 0.9);
    write(this.text, percent(share), String(share));
  }
}

export class Overview {
  constructor(history) {
    this.history = history;
    const get = (id) => document.getElementById(id);
    this.system = new Keyed(get('system'), (name) => {
      const value = make('dd');
      return { node: make('div', {}, make('dt', {}, name), value), value };
    });
    this.ports = new Keyed(get('ports'), (name) => new PortCard(name));
    this.bars = new Map();
    this.workers = new Table(
      'Workers',
      ['worker', 'busy', 'since start#', 'packets#', 'cycles/packet#', 'queues'],
      'The router has no workers.',
    );
    get('workers').append(this.workers.node);
    this.flows = new Table('Busiest flows', ['share of port#', 'bit/s#', 'packets/s#', 'port', 'flow'], '');
    get('flows').append(this.flows.node);
    this.asked = 0;
    this.total = get('total');
    this.list = get('list');
    this.rules = new Table('Access list', ['rule', 'packets#', 'in the last second#'], 'The list has no rules.');
    this.list.append(this.rules.node);
    const titles = ['reason', 'element', 'packets#', 'in the last second#'];
    this.drops = new Table('Drops', titles, 'Nothing was dropped.');
    this.punts = new Table('Punts', titles, 'Nothing was punted.');
    get('drops').append(this.drops.node);
    get('punts').append(this.punts.node);
    get('overview').addEventListener('change', () => this.history.last && this.show());
  }

  show() {
    const { last, ports } = this.history;
    this.showSystem(last);
    const unit = document.querySelector('input[name=unit]:checked').value;
    const cards = this.ports.of(last.ports.map((port) => port.name));
    for (const port of last.ports) cards.get(port.name).show(port, ports.get(port.name), unit);
    this.workers.fill(
      last.workers.map((worker) => {
        if (!this.bars.has(worker.worker)) this.bars.set(worker.worker, new Bar());
        const bar = this.bars.get(worker.worker);
        bar.show(worker.busy);
        const name = worker.is_slow ? 'slow\u00a0thread' : `worker\u00a0${worker.worker}`;
        return [
          name,
          bar.node,
          percent(worker.busy_since_start),
          number(worker.packets),
          number(worker.cycles_per_packet),
          worker.queues.join(', '),
        ];
      }),
    );
    this.showFlows();
    this.showTotal(last.ports);
    this.showList(last.features?.acl);
    this.drops.fill(this.top((snapshot) => snapshot.drops));
    this.punts.fill(this.top((snapshot) => snapshot.punts));
  }

  /** Has the router sample flows now and then. It is called while somebody looks, and nothing is sampled else. */
  async showFlows() {
    if (Date.now() - this.asked < ASK_EVERY) return;
    this.asked = Date.now();
    try {
      const { flows, problem } = await askOnce('flows');
      const names = ({ port, direction }) => `${port}\u00a0${direction}`;
      this.flows.fill(
        flows.map((row) => [
          percent(row.share),
          number(row.bits_per_second, 'bit/s'),
          number(row.packets_per_second, '/s'),
          names(row),
          row.flow || 'all other flows',
        ]),
      );
      write(this.flows.nothing, problem ? `Nothing is sampled: ${problem}` : 'No packet came in.');
    } catch (error) {
      this.flows.fill([]);
      write(this.flows.nothing, `Nothing is sampled: ${error.message}`);
    }
  }

  showTotal(ports) {
    const sum = (way, name) => ports.reduce((all, port) => all + port[way][name], 0);
    const rates = Object.entries(WAYS).map(([way, title]) => {
      const [bits, packets] = ['bits_per_second', 'packets_per_second'].map((name) => short(sum(way, name), UNIT_NAMES[name]));
      return `${title} ${bits}, ${packets}`;
    });
    const dropped = sum('rx', 'dropped') + sum('tx', 'dropped');
    write(this.total, ports.length > 1 ? `All ports: ${[...rates, `dropped ${short(dropped)}`].join(' · ')}` : '');
  }

  showList(rules) {
    this.list.hidden = !rules?.length;
    if (this.list.hidden) return;
    const rate = this.history.rate(
      (snapshot) => snapshot.features?.acl ?? [],
      (row) => `${row.number}\n${row.rule}`,
      (row) => row.packets,
    );
    const name = ({ number: place, rule }) => (place === 0 ? `no rule matches: ${rule}` : rule);
    this.rules.fill(rules.map((row) => [name(row), number(row.packets), number(rate(row), '/s')]));
  }

  showSystem({ system, neighbours }) {
    if (!system) return;
    const [free, frames] = system.frames.reduce(([free, all], [some, of]) => [free + some, all + of], [0, 0]);
    const states = Object.entries(neighbours).map(([state, count]) => `${full(count)} ${state}`);
    const facts = {
      Host: system.host,
      Version: system.version,
      Uptime: duration(system.uptime_seconds),
      Workers: full(system.workers),
      Namespace: String(system.namespace),
      Process: String(system.pid),
      Routes: system.tables
        .map(
          (table) =>
            `${full(table.routes)} ${table.family.replace('ip', 'IP')}${table.table === 254 ? '' : ` in ${table.table}`}`,
        )
        .join(', '),
      'Next hops': system.next_hops ? `${full(system.next_hops[0])} of ${full(system.next_hops[1])}` : '',
      'Free frames': frames ? `${full(free)} of ${full(frames)}` : '',
      Neighbours: states.join(', '),
    };
    const known = Object.keys(facts).filter((name) => facts[name]);
    for (const [name, { value }] of this.system.of(known)) write(value, facts[name]);
  }

  /** Returns the rows of drops or punts that grow most, then of those that are most. */
  top(list) {
    const rate = this.history.rate(
      list,
      (row) => `${row.element}\n${row.reason}`,
      (row) => row.packets,
    );
    return list(this.history.last)
      .filter((row) => row.packets > 0)
      .map((row) => ({ row, rate: rate(row) }))
      .sort((a, b) => b.rate - a.rate || b.row.packets - a.row.packets)
      .slice(0, MOST)
      .map(({ row, rate }) => [row.reason, row.element, number(row.packets), number(rate, '/s')]);
  }
}
