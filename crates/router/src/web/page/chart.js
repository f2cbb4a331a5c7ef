// A chart of what a port received and sent in the last minutes.

import { draw, duration, make, set, short, write } from './dom.js';
import { SPAN } from './history.js';

const [WIDTH, HEIGHT] = [300, 100];
/** What a chart may span, in seconds: as little as has room for all points. */
const SPANS = [60, 120, SPAN];
const COLUMNS = 4;
/** Points that are further apart are not joined, in seconds. */
const GAP = 5;

/** Returns the least of 1, 2, 5, 10, 20, ... that is not below a value. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((digit) => digit * power).find((top) => top >= value);
}

export class Chart {
  constructor(name) {
    const line = (y) => draw('line', { x1: 0, x2: WIDTH, y1: y, y2: y, class: 'grid' });
    const columns = Array.from({ length: COLUMNS - 1 }, (_, at) => ((at + 1) * WIDTH) / COLUMNS);
    this.rx = draw('path', { class: 'rx' });
    this.area = draw('path', { class: 'rx-area' });
    this.tx = draw('path', { class: 'tx' });
    this.cursor = draw('line', { y1: 0, y2: HEIGHT, class: 'cursor', visibility: 'hidden' });
    this.svg = draw(
      'svg',
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        preserveAspectRatio: 'none',
        role: 'img',
        'aria-label': `What ${name} received and sent in the last minutes`,
      },
      ...columns.map((x) => draw('line', { x1: x, x2: x, y1: 0, y2: HEIGHT, class: 'grid' })),
      line(0.5),
      line(HEIGHT / 2),
      line(HEIGHT - 0.5),
      this.area,
      this.rx,
      this.tx,
      this.cursor,
    );
    this.top = make('span');
    this.middle = make('span');
    this.read = make('span', { className: 'read' });
    this.begin = make('span');
    this.half = make('span');
    this.node = make(
      'div',
      { className: 'chart' },
      make('div', { className: 'axis-y' }, this.top, this.middle, make('span', {}, '0')),
      this.svg,
      make('div', { className: 'axis-x' }, this.begin, this.half, make('span', {}, 'now')),
      this.read,
    );
    this.svg.addEventListener('pointermove', (event) => this.point(event));
    this.svg.addEventListener('pointerleave', () => {
      this.at = null;
      this.showPointed();
    });
  }

  /** Shows points in one of their units. */
  show(points, unit, unitName) {
    Object.assign(this, { points, unit, unitName });
    const now = points.at(-1).time;
    this.span = SPANS.find((span) => span >= now - points[0].time) ?? SPAN;
    write(this.begin, `−${duration(this.span)}`);
    write(this.half, `−${duration(this.span / 2)}`);
    const most = points.reduce((most, { rx, tx }) => Math.max(most, rx[unit], tx[unit]), 0);
    const top = roundUp(most);
    write(this.top, short(top));
    write(this.middle, short(top / 2));
    const x = (point) => (WIDTH * (1 - (now - point.time) / this.span)).toFixed(1);
    const y = (point, way) => (HEIGHT - 1 - (point[way][unit] / top) * (HEIGHT - 2)).toFixed(2);
    const runs = [];
    points.forEach((point, at) => {
      if (at === 0 || point.time - points[at - 1].time > GAP) runs.push([]);
      runs.at(-1).push(point);
    });
    const line = (run, way) => run.map((point) => `${x(point)} ${y(point, way)}`).join('L');
    const path = (way) => runs.map((run) => `M${line(run, way)}`).join('');
    set(this.rx, { d: path('rx') });
    set(this.tx, { d: path('tx') });
    const areas = runs.map((run) => `M${x(run[0])} ${HEIGHT}L${line(run, 'rx')}L${x(run.at(-1))} ${HEIGHT}Z`);
    set(this.area, { d: areas.join('') });
    this.showPointed();
  }

  point(event) {
    const { left, width } = this.svg.getBoundingClientRect();
    this.at = (event.clientX - left) / width;
    this.showPointed();
  }

  /** Says the values where the pointer is. */
  showPointed() {
    const { points, unit, unitName } = this;
    if (this.at === null || this.at === undefined || !points) {
      set(this.cursor, { visibility: 'hidden' });
      return write(this.read, '');
    }
    const wanted = points.at(-1).time - this.span * (1 - this.at);
    const distance = (point) => Math.abs(point.time - wanted);
    const near = points.reduce((best, point) => (distance(point) < distance(best) ? point : best));
    const ago = Math.round(points.at(-1).time - near.time);
    const x = WIDTH * (1 - ago / this.span);
    set(this.cursor, { x1: x, x2: x, visibility: 'visible' });
    write(
      this.read,
      `${ago} s ago: received ${short(near.rx[unit], unitName)}, sent ${short(near.tx[unit], unitName)}`,
    );
  }
}
