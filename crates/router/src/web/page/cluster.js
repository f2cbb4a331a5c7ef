// The cluster: who is there and who leads, what each link carries directly and over others, what happened when.

import { draw, full, Keyed, make, number, percent, set, short, Table, write } from './dom.js';

/** The least distance of nodes whose names stand upright; names of others lead away from the middle. */
const UPRIGHT = 78;
/** What is narrower has names above and below nodes. */
const NARROW = 480;
/** Room for names beside the circle, on wide and on narrow screens, and for a letter, in pixels. */
const [NAMES, NAMES_NARROW, LETTER] = [110, 62, 7.5];
const [LEAST_RADIUS, MOST_RADIUS] = [3.5, 22];
/** The widest link, what its width is on a map with many, and the widest of a node that was chosen, in pixels. */
const [WIDEST, CHOSEN] = [12, 6];
/** More links than that are drawn thinly. */
const MANY = 150;

const WAYS = ['direct_bytes', 'balanced_bytes', 'relayed_bytes'];
const LOADS = {
  input: (node) => node.input.packets,
  routed: (node) => node.routed,
  output: (node) => node.output.packets,
};
const COUNTS = {
  ...LOADS,
  direct_bytes: (node) => node.direct_bytes,
  balanced_bytes: (node) => node.balanced_bytes,
  moved: (node) => node.moved,
};

/** Leaves out the middle of a name that is too long: names of servers often end with a number. */
function cut(text, most) {
  const end = Math.ceil((most - 1) / 2);
  return text.length > most ? `${text.slice(0, most - 1 - end)}…${text.slice(text.length - end)}` : text;
}

const sum = (values) => values.reduce((all, value) => all + value, 0);

/** How wide a link is for bytes a second: beside the busiest one, which is the wider the more it carries. */
function thickness(bytes, busiest, widest) {
  if (!(bytes > 0)) return 0;
  return Math.max(widest * Math.min(1, Math.log10(1 + busiest / 100) / 6) * Math.sqrt(bytes / busiest), 0.8);
}

/** Whether nodes of a role may have a load. */
const mayHave = (node, load) => node.role.split('+').includes(load === 'routed' ? 'route' : 'edge');

/**
 * The last two counts of each node that differ in when they were made: nodes report every two seconds, and rates are of the time between
 * two reports.
 */
class Samples {
  last = new Map();
  before = new Map();

  add(nodes) {
    for (const node of nodes) {
      const last = this.last.get(node.node);
      if (last?.counted_at === node.counted_at) continue;
      // A node that began anew counts anew.
      if (last && last.counted_at < node.counted_at) this.before.set(node.node, last);
      else this.before.delete(node.node);
      this.last.set(node.node, node);
    }
  }

  /** Returns how much `count` of a node grew in a second; null where that is not known. */
  rate(node, count) {
    const before = this.before.get(node.node);
    if (!before || !node.is_reached) return null;
    const [now, then] = [count(node), count(before)];
    return now < then ? null : (now - then) / (node.counted_at - before.counted_at);
  }
}

/** A node of the map. */
class NodeMark {
  constructor(name, view) {
    this.circle = draw('circle', { class: 'disc' });
    this.ring = draw('circle', { class: 'crown' });
    this.sign = draw('text', { class: 'sign', 'text-anchor': 'middle', dy: '0.35em' });
    this.name = draw('text', { class: 'name', dy: '0.35em' });
    this.node = draw(
      'g',
      { class: 'server', tabindex: -1, role: 'img', 'data-node': name },
      this.ring,
      this.circle,
      this.sign,
      this.name,
    );
    this.node.addEventListener('pointerenter', () => view.choose(name));
    this.node.addEventListener('focus', () => view.choose(name));
  }

  show(node, { x, y, angle, radius, isUpright, isNarrow, letters }) {
    set(this.node, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
    set(this.circle, { r: radius });
    set(this.ring, { r: radius + 4, visibility: node.leads ? 'visible' : 'hidden' });
    write(this.sign, !node.is_reached ? '✕' : node.leads ? '★' : '');
    set(this.sign, { 'font-size': Math.max(9, radius) });
    write(this.name, cut(node.node, letters));
    const out = radius + 8;
    const isLeft = Math.cos(angle) < -0.01;
    if (isUpright && isNarrow) {
      const dy = (Math.sin(angle) < -0.01 ? -1 : 1) * (out + 4);
      set(this.name, { x: 0, y: dy, 'text-anchor': 'middle', transform: '' });
    } else if (isUpright) {
      const side = Math.abs(Math.cos(angle)) < 0.2 ? 'middle' : isLeft ? 'end' : 'start';
      const [dx, dy] = [Math.cos(angle) * out, Math.sin(angle) * (side === 'middle' ? out + 4 : out)];
      set(this.name, { x: dx.toFixed(1), y: dy.toFixed(1), 'text-anchor': side, transform: '' });
    } else {
      const turn = (angle * 180) / Math.PI + (isLeft ? 180 : 0);
      set(this.name, {
        x: isLeft ? -out : out,
        y: 0,
        'text-anchor': isLeft ? 'end' : 'start',
        transform: `rotate(${turn.toFixed(1)})`,
      });
    }
    this.node.classList.toggle('gone', !node.is_reached);
    this.node.classList.toggle('leads', node.leads);
    set(this.node, { 'aria-label': `${node.node}: ${node.state}, ${node.role}` });
  }
}

/** A link of the map: what each end sends is a half of it, as wide as its bits, in the colours of its ways. */
class LinkMark {
  constructor() {
    this.title = draw('title');
    this.reach = draw('path', { class: 'reach' });
    this.idle = draw('path', { class: 'cable' });
    this.parts = ['direct', 'others', 'direct', 'others'].map((way) => draw('path', { class: way }));
    this.node = draw('g', { class: 'wire' }, this.title, this.reach, this.idle, ...this.parts);
  }

  show({ ends, places, isUp, words }, busiest, widest) {
    write(this.title, words);
    const [a, b] = places;
    const line = `M${a.x.toFixed(1)} ${a.y.toFixed(1)}L${b.x.toFixed(1)} ${b.y.toFixed(1)}`;
    set(this.reach, { d: line });
    set(this.idle, { d: line });
    this.node.classList.toggle('down', !isUp);
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const [nx, ny] = [(a.y - b.y) / length, (b.x - a.x) / length];
    const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
    ends.forEach(({ direct, others }, at) => {
      const width = isUp ? thickness(direct + others, busiest, widest) : 0;
      const split = width * (direct / (direct + others || 1)) - width / 2;
      const strip = (low, high) => {
        const at4 = (place, off) => `${(place.x + nx * off).toFixed(1)} ${(place.y + ny * off).toFixed(1)}`;
        const from = places[at];
        return high - low < 0.05
          ? ''
          : `M${at4(from, low)}L${at4(middle, low)}L${at4(middle, high)}L${at4(from, high)}Z`;
      };
      set(this.parts[2 * at], { d: strip(-width / 2, split) });
      set(this.parts[2 * at + 1], { d: strip(split, width / 2) });
    });
  }
}

export class Cluster {
  constructor(history) {
    this.history = history;
    this.samples = new Samples();
    const get = (id) => document.getElementById(id);
    this.section = get('cluster');
    this.about = get('cluster-about');
    this.even = get('cluster-even');
    this.canvas = get('cluster-map');
    const [wires, servers] = [draw('g'), draw('g')];
    this.svg = draw(
      'svg',
      {
        role: 'group',
        'aria-label': 'Map of the cluster. Arrow keys go from node to node.',
      },
      wires,
      servers,
    );
    this.canvas.append(this.svg);
    this.wires = new Keyed(wires, () => new LinkMark());
    this.servers = new Keyed(servers, (name) => new NodeMark(name, this));
    this.table = new Table(
      'Nodes',
      [
        'node', 'state', 'links up#', 'lag#', 'input#', 'routed#', 'output#', 'input/s#', 'direct bytes#',
        'balanced bytes#', 'direct now#', 'moved#',
      ],
      'No node is known.',
    );
    get('cluster-nodes').append(this.table.node);
    this.events = new Table('Events', ['when', 'what happened'], 'Nothing has happened.');
    get('cluster-events').append(this.events.node);
    this.showDetails = this.makeDetails(get('cluster-details'));
    this.svg.addEventListener('keydown', (event) => this.press(event));
    new ResizeObserver(() => this.canvas.clientWidth && this.history.last && this.show()).observe(this.canvas);
  }

  /** Whether the router is a node of a cluster. */
  static isThere(snapshot) {
    return snapshot.cluster.length > 0;
  }

  /** Takes in a snapshot, shown or not. */
  add(snapshot) {
    this.samples.add(snapshot.cluster.filter((row) => row.kind === 'node'));
  }

  show() {
    const rows = this.history.last.cluster;
    const of = (kind) => rows.filter((row) => row.kind === kind);
    const [cluster] = of('cluster');
    if (!cluster) return;
    this.nodes = of('node');
    const hidden = cluster.nodes - this.nodes.length;
    const leads = cluster.leader === null ? 'nobody leads' : `${cluster.leader} leads`;
    const parts = [cluster.topology, `${cluster.nodes} nodes`, leads, `${cluster.here} answers`];
    if (hidden > 0) parts.push(`${hidden} more nodes are not shown`);
    if (cluster.problem) parts.push(`the store cannot be used: ${cluster.problem}`);
    write(this.about, `${cluster.name}: ${parts.join(' · ')}`);
    write(this.even, this.evenness());
    this.draw();
    this.showDetails();
    this.fillTable();
    const events = of('event').reverse();
    const when = (time) => new Date(1000 * time).toLocaleTimeString('en-GB');
    this.events.fill(events.map(({ time, text }) => [when(time), text]));
  }

  /** Says how far the most loaded node is above the mean: by what nodes do now, or since they began. */
  evenness() {
    const parts = Object.entries(LOADS).flatMap(([load, count]) => {
      const nodes = this.nodes.filter((node) => node.is_reached && mayHave(node, load));
      const rates = nodes.map((node) => this.samples.rate(node, count));
      if (rates.some((rate) => rate === null) || sum(rates) === 0) return [];
      const most = Math.max(...rates);
      const factor = (most * rates.length) / sum(rates);
      return [`${load} ${factor.toFixed(2)} (${nodes[rates.indexOf(most)].node})`];
    });
    const text = parts.length ? parts.join(', ') : 'no packets now';
    return `Evenness, most loaded node over mean: ${text}`;
  }

  /** Lays nodes out in a circle, by number, and links between them. */
  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    set(this.svg, { viewBox: `0 0 ${width} ${height}` });
    const { nodes } = this;
    const isNarrow = width < NARROW;
    const names = isNarrow ? NAMES_NARROW : NAMES;
    const [across, down] = [width / 2 - names, height / 2 - names].map((room) => Math.max(room, 60));
    const apartWithin = (down) => (2 * Math.PI * Math.min(across, down)) / Math.max(nodes.length, 1);
    const low = height / 2 - 52;
    const isUpright = apartWithin(low) >= UPRIGHT;
    const ry = isUpright ? low : down;
    const round = nodes.length > 2 ? Math.min(across, ry * 2.2) : across;
    const room = isUpright && isNarrow ? 2 * names - 8 : names - 10;
    const letters = Math.floor((room - (isNarrow ? 0 : MOST_RADIUS)) / LETTER);
    // As much of the distance between two nodes as leaves the links visible.
    const radius = Math.min(Math.max(0.38 * apartWithin(ry), LEAST_RADIUS), MOST_RADIUS);
    const places = new Map(
      nodes.map((node, at) => {
        const turn = (2 * Math.PI * at) / nodes.length - Math.PI / 2;
        const [x, y] = [width / 2 + round * Math.cos(turn), height / 2 + ry * Math.sin(turn)];
        const angle = Math.atan2(ry * Math.sin(turn), round * Math.cos(turn));
        return [node.node, { x, y, angle, radius, isUpright, isNarrow, letters }];
      }),
    );
    const marks = this.servers.of(nodes.map((node) => node.node));
    for (const node of nodes) marks.get(node.node).show(node, places.get(node.node));
    this.links = this.pairs(places);
    const wires = this.wires.of([...this.links.keys()]);
    const all = [...this.links.values()];
    const busiest = Math.max(0, ...all.flatMap(({ ends }) => ends.map(({ direct, others }) => direct + others)));
    const widest = Math.min(WIDEST, 60 / Math.sqrt(all.length));
    this.svg.classList.toggle('dense', all.length > MANY);
    for (const [key, pair] of this.links) {
      const isChosen = pair.names.includes(this.chosen);
      wires.get(key).show(pair, busiest, isChosen ? Math.max(widest, CHOSEN) : widest);
    }
    this.mark();
    // One node is reached by Tab, the others by arrow keys.
    const reached = marks.has(this.chosen) ? this.chosen : nodes[0]?.node;
    for (const [name, { node }] of marks) set(node, { tabindex: name === reached ? 0 : -1 });
  }

  /** Returns what each pair of nodes that are wired sends to each other. */
  pairs(places) {
    const pairs = new Map();
    this.nodes.forEach((node) => {
      for (const link of node.links) {
        if (!places.has(link.to)) continue;
        const names = [node.node, link.to].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
        const key = names.join('\n');
        const pair = pairs.get(key) ?? { names, ends: [null, null], up: [false, false] };
        const at = names.indexOf(node.node);
        const count = (name) => (of) => of.links.find((known) => known.link === link.link)?.[name] ?? 0;
        const [direct, balanced, relayed] = WAYS.map((name) => this.samples.rate(node, count(name)));
        const end = pair.ends[at] ?? { direct: 0, others: 0 };
        pair.ends[at] = { direct: end.direct + (direct ?? 0), others: end.others + (balanced ?? 0) + (relayed ?? 0) };
        pair.up[at] = pair.up[at] || link.is_up;
        pairs.set(key, pair);
      }
    });
    const isReached = (name) => this.nodes.find((node) => node.node === name).is_reached;
    for (const pair of pairs.values()) {
      pair.places = pair.names.map((name) => places.get(name));
      // An end that has not been heard of says nothing.
      pair.isUp = pair.names.every(isReached) && pair.up.some((isUp, at) => isUp && pair.ends[at]);
      pair.ends = pair.ends.map((end) => end ?? { direct: 0, others: 0 });
      const words = ({ direct, others }) => {
        const all = direct + others;
        return `${short(8 * all, 'bit/s')}${all > 0 ? `, ${percent(direct / all)} of it direct` : ''}`;
      };
      const [a, b] = pair.names;
      const state = pair.isUp ? '' : ', down';
      pair.words = `${a} → ${b}: ${words(pair.ends[0])}\n${b} → ${a}: ${words(pair.ends[1])}${state}`;
    }
    return pairs;
  }

  /** Marks what is chosen. */
  mark() {
    for (const [name, { node }] of this.servers.parts) node.classList.toggle('chosen', name === this.chosen);
    for (const [key, { node }] of this.wires.parts)
      node.classList.toggle('chosen', key.split('\n').includes(this.chosen));
    this.svg.classList.toggle('choosing', this.servers.parts.has(this.chosen));
  }

  choose(name) {
    this.chosen = name;
    this.draw();
    this.showDetails();
  }

  press(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const names = [...this.servers.parts.keys()];
    const at = (names.indexOf(this.chosen) + step + names.length) % names.length;
    this.servers.parts.get(names[at]).node.focus();
  }

  fillTable() {
    const sums = Object.fromEntries(
      Object.entries(LOADS).map(([load, count]) => [load, sum(this.nodes.map(count))]),
    );
    const share = (node, load) => (sums[load] > 0 ? percent(LOADS[load](node) / sums[load]) : '–');
    this.table.fill(
      this.nodes.map((node) => {
        const isMember = node.lag !== null;
        const known = (cell) => (isMember ? cell : '–');
        const [direct, balanced] = ['direct_bytes', 'balanced_bytes'].map((name) =>
          this.samples.rate(node, COUNTS[name]),
        );
        const up = node.links.filter((link) => link.is_up).length;
        return [
          node.leads ? `${node.node} ★` : node.node,
          node.state,
          known(`${up} of ${node.links.length}`),
          known(number(node.lag)),
          known(share(node, 'input')),
          known(share(node, 'routed')),
          known(share(node, 'output')),
          known(number(Math.round(this.samples.rate(node, LOADS.input) ?? 0), 'packets/s')),
          known(number(node.direct_bytes)),
          known(number(node.balanced_bytes)),
          direct + balanced > 0 ? percent(direct / (direct + balanced)) : '–',
          known(number(node.moved)),
        ];
      }),
    );
    this.nodes.forEach((node, at) => {
      const row = this.table.body.rows[at];
      row.dataset.node = node.node;
      row.classList.toggle('gone', !node.is_reached);
    });
  }

  makeDetails(panel) {
    const hint = make('p', { className: 'muted' }, 'Point at a node, or go to it by Tab and arrow keys, for its links.');
    const title = make('h2');
    const facts = make('dl', { className: 'facts' });
    const known = new Keyed(facts, (name) => {
      const value = make('dd');
      return { node: make('div', {}, make('dt', {}, name), value), value };
    });
    const links = new Table(
      'Links',
      ['to', 'direct#', 'balanced#', 'relayed#'],
      'It has not said what links it has.',
    );
    panel.append(hint, title, facts, links.node);
    return () => {
      const node = this.nodes?.find((known) => known.node === this.chosen);
      hint.hidden = Boolean(node);
      title.hidden = facts.hidden = links.node.hidden = !node;
      if (!node) return;
      write(title, node.leads ? `${node.node} ★` : node.node);
      const rate = (count) => {
        const value = this.samples.rate(node, count);
        return value === null ? '–' : short(Math.round(value), 'packets/s');
      };
      const values = {
        State: node.state,
        Role: node.role,
        'Log lag': node.lag === null ? '–' : full(node.lag),
        Input: rate(LOADS.input),
        Routed: rate(LOADS.routed),
        Output: rate(LOADS.output),
        'Flowlets moved': full(node.moved),
        'Link full': full(node.link_full),
      };
      for (const [name, { value }] of known.of(Object.keys(values))) write(value, values[name]);
      links.fill(
        node.links.map((link) => {
          const bits = (name) => {
            const count = (of) => of.links.find((known) => known.link === link.link)?.[name] ?? 0;
            const bytes = this.samples.rate(node, count);
            const cell = make('data', {}, bytes === null ? '–' : short(8 * Math.round(bytes), 'bit/s'));
            set(cell, { value: link[name], title: `${full(link[name])} bytes so far` });
            return cell;
          };
          const state = link.is_up ? '' : ' ✕ down';
          return [`${link.to}${state}${link.problem ? `: ${link.problem}` : ''}`, ...WAYS.map(bits)];
        }),
      );
      node.links.forEach((link, at) => {
        links.body.rows[at].dataset.to = link.to;
      });
    };
  }
}
