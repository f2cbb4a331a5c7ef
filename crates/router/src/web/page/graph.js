// The graph of elements: where packets go, how many, and what they cost.

import { draw, full, Keyed, make, number, percent, set, short, Table, write } from './dom.js';
import { layOut } from './layout.js';

/** Size of an element, and the space between two, in pixels. */
const [WIDTH, HEIGHT, BETWEEN_LAYERS, BETWEEN, BETWEEN_STEPS] = [196, 42, 60, 20, 16];
/** The most elements that stand below each other. */
const LONGEST_STACK = 8;
/** The most letters of a name and a class that have room. */
const [NAME, CLASS] = [21, 17];
const [LEAST_SCALE, MOST_SCALE, LEGIBLE] = [0.1, 3, 0.6];
const MARGIN = 24;

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** How wide a line is for packets a second. */
const thickness = (rate) => 1 + 1.6 * Math.log10(1 + (rate ?? 0));

/** Joins edges between the same elements; their packets are the sum, null where one is not counted. */
function join(edges) {
  const joined = new Map();
  for (const edge of edges) {
    const key = `${edge.from}\n${edge.to}`;
    const known = joined.get(key);
    const sum = (a, b) => (a === null || b === null ? null : a + b);
    if (known)
      Object.assign(known, { packets: sum(known.packets, edge.packets), rate: sum(known.rate, edge.rate) });
    else joined.set(key, { ...edge, key });
  }
  return [...joined.values()];
}

/**
 * Puts elements into stacks: an element that sends to one alone, which gets from it alone, stands above that.
 *
 * Returns `stacks`, a map of the first of each stack to all of it, and `first`, a map of each element to the first of its stack.
 */
function stackUp(names, edges) {
  const [next, before] = [new Map(names.map((name) => [name, []])), new Map(names.map((name) => [name, []]))];
  for (const { from, to } of edges) {
    next.get(from).push(to);
    before.get(to).push(from);
  }
  const follows = (name) => before.get(name).length === 1 && next.get(before.get(name)[0]).length === 1;
  const [first, stacks] = [new Map(), new Map()];
  // What is left when all that begins a stack has been taken is a cycle.
  for (const begin of [...names.filter((name) => !follows(name)), ...names]) {
    let stack;
    for (let name = begin; name !== undefined && !first.has(name); [name] = next.get(name)) {
      if (stack && !follows(name)) break;
      if (!stack || stack.length === LONGEST_STACK) stacks.set(name, (stack = []));
      stack.push(name);
      first.set(name, stack[0]);
    }
  }
  return { first, stacks };
}

class NodeBox {
  constructor(name, graph) {
    this.name = draw('text', { x: 10, y: 17, class: 'name' });
    this.about = draw('text', { x: 10, y: 33, class: 'about' });
    this.rate = draw('text', { x: WIDTH - 10, y: 33, class: 'rate', 'text-anchor': 'end' });
    this.title = draw('title');
    this.badge = draw('rect', { y: -9, height: 18, rx: 9, class: 'badge' });
    this.dropped = draw('text', { x: WIDTH - 6, y: 4, class: 'badge-text', 'text-anchor': 'end' });
    this.node = draw(
      'g',
      { class: 'element', tabindex: 0, role: 'img' },
      this.title,
      draw('rect', { width: WIDTH, height: HEIGHT, rx: 6, class: 'box' }),
      this.name,
      this.about,
      this.rate,
      this.badge,
      this.dropped,
    );
    this.node.addEventListener('pointerenter', () => graph.choose(name));
    this.node.addEventListener('focus', () => graph.choose(name, this.node.matches(':focus-visible')));
  }

  show(element) {
    write(this.name, cut(element.element, NAME));
    write(this.about, cut(element.class, CLASS));
    write(this.rate, element.rate === null ? '' : short(Math.round(element.rate), '/s'));
    const words = `${element.element}, ${element.class}: ${full(element.packets)} packets, ${full(element.dropped)} dropped`;
    write(this.title, words);
    set(this.node, { 'aria-label': words });
    this.node.style.setProperty('--warmth', `${(100 * Math.sqrt(element.share ?? 0)).toFixed(1)}%`);
    this.node.classList.toggle('idle', element.rate === 0);
    const lost =
      element.dropped > 0
        ? `✕ ${element.dropRate > 0 ? short(Math.round(element.dropRate), '/s') : short(element.dropped)}`
        : '';
    write(this.dropped, lost);
    const width = lost ? 12 + 7 * lost.length : 0;
    set(this.badge, { width, x: WIDTH - width + 2, visibility: lost ? 'visible' : 'hidden' });
    this.badge.classList.toggle('now', element.dropRate > 0);
  }
}

class EdgeLine {
  constructor() {
    this.title = draw('title');
    this.line = draw('path', { class: 'line' });
    // So wide that a pointer finds it.
    this.reach = draw('path', { class: 'reach' });
    this.tip = draw('path', { class: 'tip' });
    this.node = draw('g', { class: 'edge' }, this.title, this.reach, this.line, this.tip);
  }

  show(edge) {
    const rate = edge.rate === null ? '' : `, ${full(edge.rate)} packets/s`;
    const packets =
      edge.packets === null ? 'packets are not counted' : `${full(edge.packets)} packets${rate}`;
    write(this.title, `${edge.from} → ${edge.to}: ${packets}`);
    set(this.line, { 'stroke-width': thickness(edge.rate).toFixed(1) });
    this.node.classList.toggle('idle', edge.rate === 0 || edge.rate === null);
    this.node.classList.toggle('uncounted', edge.packets === null);
  }
}

export class Graph {
  constructor(history) {
    this.history = history;
    const get = (id) => document.getElementById(id);
    this.canvas = get('canvas');
    this.stage = draw('g');
    const [lines, boxes] = [draw('g'), draw('g')];
    this.stage.append(lines, boxes);
    this.svg = draw(
      'svg',
      {
        tabindex: 0,
        role: 'group',
        'aria-label':
          'Graph of elements. Arrow keys move it, plus and minus zoom, 0 shows all; Tab goes from element to element.',
      },
      this.stage,
    );
    this.canvas.append(this.svg);
    this.lines = new Keyed(lines, () => new EdgeLine());
    this.boxes = new Keyed(boxes, (name) => new NodeBox(name, this));
    this.idle = get('idle');
    this.idle.addEventListener('change', () => {
      this.isMoved = false;
      this.show();
    });
    this.showDetails = this.makeDetails(get('details'));
    get('closer').addEventListener('click', () => this.zoom(1.25));
    get('farther').addEventListener('click', () => this.zoom(0.8));
    get('fit').addEventListener('click', () => this.fit(LEAST_SCALE));
    this.listen();
    new ResizeObserver(() => this.canvas.clientWidth && this.show()).observe(this.canvas);
  }

  /** Returns the elements and edges of the newest snapshot with their rates. */
  read() {
    const { history } = this;
    if (!history.last) return { elements: [], edges: [] };
    const list = (snapshot) => snapshot.elements;
    const name = (row) => row.element;
    const rates = Object.fromEntries(
      ['packets', 'dropped', 'cycles'].map((count) => [count, history.rate(list, name, (row) => row[count])]),
    );
    const all = (snapshot) =>
      snapshot.elements.flatMap((element) =>
        element.edges.map((edge) => ({ ...edge, from: element.element })),
      );
    const edgeRate = history.rate(
      all,
      (edge) => `${edge.from}\n${edge.output}\n${edge.to}\n${edge.input}`,
      (edge) => edge.packets,
    );
    const elements = history.last.elements.map((row) => ({
      ...row,
      rate: rates.packets(row),
      dropRate: rates.dropped(row),
      cycleRate: rates.cycles(row),
    }));
    const cycles = elements.reduce((sum, { cycleRate }) => sum + (cycleRate ?? 0), 0);
    for (const element of elements) element.share = cycles > 0 ? (element.cycleRate ?? 0) / cycles : 0;
    return { elements, edges: all(history.last).map((edge) => ({ ...edge, rate: edgeRate(edge) })) };
  }

  show() {
    const { elements, edges } = this.read();
    const shown = elements.filter(
      (element) => this.idle.checked || element.packets > 0 || element.dropped > 0,
    );
    const names = new Set(shown.map((element) => element.element));
    this.elements = new Map(elements.map((element) => [element.element, element]));
    this.outputs = edges;
    const lines = join(edges.filter(({ from, to }) => names.has(from) && names.has(to))).filter(
      (edge) => this.idle.checked || edge.packets !== 0,
    );
    const boxes = this.boxes.of([...names]);
    for (const element of shown) boxes.get(element.element).show(element);
    const drawn = this.lines.of(lines.map((edge) => edge.key));
    for (const edge of lines) drawn.get(edge.key).show(edge);
    // On a narrow screen layers lie below each other.
    const isDown = this.canvas.clientWidth < this.canvas.clientHeight * 1.2;
    const shape = JSON.stringify([isDown, [...names], lines.map((edge) => edge.key)]);
    if (shape !== this.shape && this.canvas.clientWidth > 0) {
      this.shape = shape;
      this.place([...names], lines, isDown);
      if (!this.isMoved) this.fit(LEGIBLE);
    }
    this.showDetails();
  }

  /** Puts elements and edges where they belong: those with one way from each to the next in stacks, the stacks in layers. */
  place(names, edges, isDown) {
    const { first, stacks } = stackUp(names, edges);
    const height = (stack) => stack.length * (HEIGHT + BETWEEN_STEPS) - BETWEEN_STEPS;
    const between = edges
      .filter(({ from, to }) => first.get(from) !== first.get(to))
      .map((edge) => ({ edge, from: first.get(edge.from), to: first.get(edge.to) }));
    const [lengthOf, breadthOf] = isDown ? [height, () => WIDTH] : [() => WIDTH, height];
    const { places, ways, layers, breadth } = layOut(
      [...stacks.keys()],
      between,
      (name) => breadthOf(stacks.get(name)),
      BETWEEN,
    );
    const lengths = Array(layers).fill(0);
    for (const [name, { layer }] of places)
      lengths[layer] = Math.max(lengths[layer], lengthOf(stacks.get(name)));
    let length = 0;
    const begins = lengths.map((own) => (length += own + BETWEEN_LAYERS) - own - BETWEEN_LAYERS);
    [this.width, this.height] = [length - BETWEEN_LAYERS, breadth];
    if (isDown) [this.width, this.height] = [this.height, this.width];

    const corners = new Map();
    for (const [name, stack] of stacks) {
      const { layer, place } = places.get(name);
      const [u, v] = [begins[layer], place - breadthOf(stack) / 2];
      stack.forEach((element, at) => {
        const [x, y] = isDown ? [v, u] : [u, v];
        corners.set(element, [x, y + at * (HEIGHT + BETWEEN_STEPS)]);
        set(this.boxes.parts.get(element).node, { transform: `translate(${corners.get(element)})` });
      });
    }
    const wayOf = new Map([...ways].map(([{ edge }, way]) => [edge, way]));
    for (const edge of edges) {
      const [from, to] = [corners.get(edge.from), corners.get(edge.to)];
      const way = wayOf.get(edge);
      const isBack = way && way[0].layer > way.at(-1).layer;
      // Within a stack lines lead down, else along the layers; what closes a cycle comes back along them.
      const goesDown = isDown || !way;
      const [enters, leaves] = isBack ? [1, 0] : [0, 1];
      const end = ([x, y], side) =>
        goesDown ? [x + WIDTH / 2, y + side * HEIGHT] : [x + side * WIDTH, y + HEIGHT / 2];
      const [begin, last] = [end(from, leaves), end(to, enters)];
      const turn = isBack ? -1 : 1;
      const back = ([x, y], by) => (goesDown ? [x, y - turn * by] : [x - turn * by, y]);
      const stops = (way ?? []).slice(1, -1).flatMap(({ layer, place }) => {
        const through = [begins[layer], begins[layer] + lengths[layer]];
        if (isBack) through.reverse();
        return through.map((along) => (isDown ? [place, along] : [along, place]));
      });
      const at = (point) => point.map((value) => value.toFixed(1)).join(' ');
      let here = begin;
      const curves = [...stops, back(last, 6)].map((next) => {
        const middle = goesDown ? (here[1] + next[1]) / 2 : (here[0] + next[0]) / 2;
        const bends = [here, next].map(([x, y]) => at(goesDown ? [x, middle] : [middle, y]));
        here = next;
        return `C${bends.join(' ')} ${at(next)}`;
      });
      const { line, reach, tip } = this.lines.parts.get(edge.key);
      const isLoop = edge.from === edge.to;
      const d = isLoop ? '' : `M${at(begin)}${curves.join('')}`;
      set(line, { d });
      set(reach, { d });
      const [x, y] = back(last, 9);
      const wings = [-5, 5].map((wing) => at(goesDown ? [x + wing, y] : [x, y + wing]));
      set(tip, { d: isLoop ? '' : `M${at(last)}L${wings.join('L')}Z` });
    }
  }

  /** Shows all of the graph; where it would be smaller than `least`, its begin. */
  fit(least) {
    const { clientWidth, clientHeight } = this.canvas;
    if (!this.width || !clientWidth) return;
    const fits = Math.min((clientWidth - 2 * MARGIN) / this.width, (clientHeight - 2 * MARGIN) / this.height);
    this.scale = Math.min(Math.max(fits, least), 1.25);
    const begin = (room, size) => Math.max((room - size * this.scale) / 2, MARGIN);
    this.x = begin(clientWidth, this.width);
    this.y = begin(clientHeight, this.height);
    this.isMoved = false;
    this.move(0, 0);
  }

  move(x, y) {
    this.x += x;
    this.y += y;
    set(this.stage, { transform: `translate(${this.x} ${this.y}) scale(${this.scale})` });
  }

  /** Zooms about a point of the canvas, which stays where it is. */
  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.min(Math.max(this.scale * factor, LEAST_SCALE), MOST_SCALE);
    const ratio = scale / this.scale;
    this.scale = scale;
    this.isMoved = true;
    this.move((x - this.x) * (1 - ratio), (y - this.y) * (1 - ratio));
  }

  listen() {
    const { svg } = this;
    svg.addEventListener(
      'wheel',
      (event) => {
        event.preventDefault();
        const { left, top } = svg.getBoundingClientRect();
        this.zoom(Math.exp(-event.deltaY / 400), event.clientX - left, event.clientY - top);
      },
      { passive: false },
    );
    let dragged = null;
    svg.addEventListener('pointerdown', (event) => {
      dragged = event.pointerId;
    });
    svg.addEventListener('pointermove', (event) => {
      if (dragged !== event.pointerId || event.buttons === 0) return;
      svg.setPointerCapture(dragged);
      this.isMoved = true;
      this.move(event.movementX, event.movementY);
    });
    for (const end of ['pointerup', 'pointercancel'])
      svg.addEventListener(end, () => {
        dragged = null;
      });
    const keys = {
      ArrowLeft: () => this.move(60, 0),
      ArrowRight: () => this.move(-60, 0),
      ArrowUp: () => this.move(0, 60),
      ArrowDown: () => this.move(0, -60),
      '+': () => this.zoom(1.25),
      '=': () => this.zoom(1.25),
      '-': () => this.zoom(0.8),
      0: () => this.fit(LEAST_SCALE),
    };
    svg.addEventListener('keydown', (event) => {
      const act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.isMoved = true;
      act();
    });
  }

  /** Says more of an element from now on. `inView` has it moved into view. */
  choose(name, inView = false) {
    this.chosen = name;
    const { node } = this.boxes.parts.get(name);
    for (const box of this.boxes.parts.values()) box.node.classList.toggle('chosen', box.node === node);
    for (const [key, line] of this.lines.parts)
      line.node.classList.toggle('chosen', key.split('\n').includes(name));
    if (inView) {
      const [box, view] = [node.getBoundingClientRect(), this.svg.getBoundingClientRect()];
      const into = (low, high, from, to) =>
        low < from ? from - low + MARGIN : high > to ? to - high - MARGIN : 0;
      // Browsers scroll to what has the focus, which the stage does by itself.
      this.canvas.scrollTo(0, 0);
      this.move(
        into(box.left, box.right, view.left, view.right),
        into(box.top, box.bottom, view.top, view.bottom),
      );
    }
    this.showDetails();
  }

  makeDetails(panel) {
    const hint = make(
      'p',
      { className: 'muted' },
      'Point at an element, or go to it by Tab, for its numbers.',
    );
    const title = make('h2');
    const facts = make('dl', { className: 'facts' });
    const known = new Keyed(facts, (name) => {
      const value = make('dd');
      return { node: make('div', {}, make('dt', {}, name), value), value };
    });
    const outputs = new Table('Outputs', ['out#', 'to', 'packets#', 'now#'], 'It has no outputs.');
    panel.append(hint, title, facts, outputs.node);
    return () => {
      const element = this.elements?.get(this.chosen);
      hint.hidden = Boolean(element);
      title.hidden = facts.hidden = outputs.node.hidden = !element;
      if (!element) return;
      write(title, `${element.element} :: ${element.class}`);
      const rate = (value) => (value === null ? '–' : full(Math.round(value)));
      const values = {
        Packets: full(element.packets),
        'Packets/s': rate(element.rate),
        Dropped: full(element.dropped),
        'Dropped/s': rate(element.dropRate),
        'Cycles/s (estimated)': rate(element.cycleRate),
        'Share of all elements': percent(element.share),
        'Cycles/packet': element.rate > 0 ? short(element.cycleRate / element.rate) : '–',
      };
      for (const [name, { value }] of known.of(Object.keys(values))) write(value, values[name]);
      const edges = this.outputs.filter((edge) => edge.from === element.element);
      edges.sort((a, b) => b.packets - a.packets || a.output - b.output);
      outputs.fill(
        edges.map((edge) => [number(edge.output), edge.to, number(edge.packets), number(edge.rate, '/s')]),
      );
    };
  }
}
