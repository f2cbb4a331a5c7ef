// The snapshots of the last minutes: the newest in full, of the others what charts show. The router has the minutes before.

import { ask, rowsOf } from './api.js';

/** How many seconds charts show. */
export const SPAN = 300;
/** Longest time between two snapshots of which rates are made, in seconds. */
const LONGEST_STEP = 5;

const WAYS = ['rx', 'tx'];
const UNITS = ['bits_per_second', 'packets_per_second'];

export class History {
  /** The newest snapshot, and the one before it, if it can be compared. */
  last = null;
  before = null;
  /** Points of each port: {time, rx: {bits_per_second, packets_per_second}, tx: ...}. */
  ports = new Map();
  /** Whether points are missing that the router may have. */
  isIncomplete = false;

  /** `onLoad` is called when points have come that are older than the snapshots. */
  constructor(onLoad = () => {}) {
    this.onLoad = onLoad;
  }

  add(snapshot) {
    const { last } = this;
    // Who comes twice within a second gets the same one.
    if (snapshot.time === last?.time && !this.isBroken) return;
    const step = last ? snapshot.time - last.time : 0;
    const isNewRun = last?.system?.pid !== snapshot.system?.pid;
    if (isNewRun) this.ports.clear();
    this.before = last && !isNewRun && !this.isBroken && step > 0 && step < LONGEST_STEP ? last : null;
    // Some are missing at the begin, behind a gap, and of ports that come back.
    this.isIncomplete ||= !this.before || snapshot.ports.some(({ name }) => !this.ports.has(name));
    this.isBroken = false;
    this.last = snapshot;
    const ports = new Map();
    for (const port of snapshot.ports) {
      const point = { time: snapshot.time };
      for (const way of WAYS) point[way] = Object.fromEntries(UNITS.map((unit) => [unit, port[way][unit]]));
      const points = this.ports.get(port.name) ?? [];
      points.push(point);
      while (points[0].time < snapshot.time - SPAN) points.shift();
      ports.set(port.name, points);
    }
    this.ports = ports;
    if (this.isIncomplete && !this.isLoading) this.load();
  }

  /** Puts the router's points in the place of those here, up to its newest. */
  async load() {
    Object.assign(this, { isLoading: true, isIncomplete: false });
    const { pid } = this.last.system ?? {};
    try {
      const known = new Map();
      for await (const rows of rowsOf(await ask('history', {}))) {
        for (const { time, port, rx, tx } of rows) {
          if (!known.has(port)) known.set(port, []);
          known.get(port).push({ time: Date.parse(time) / 1000, rx, tx });
        }
      }
      const { last, ports } = this;
      // Another router answers here by now, and is asked anew.
      if (last.system?.pid !== pid) return;
      for (const [name, points] of ports) {
        const old = (known.get(name) ?? []).filter(({ time }) => time >= last.time - SPAN && time < last.time);
        const newest = old.at(-1)?.time ?? -Infinity;
        ports.set(name, [...old, ...points.filter(({ time }) => time > newest && time <= last.time)]);
      }
      this.onLoad();
    } catch {
      // It is tried again with the next snapshot.
      this.isIncomplete = true;
    } finally {
      this.isLoading = false;
    }
  }

  /** Notes that what comes next does not follow on what was last. */
  breakOff() {
    this.isBroken = true;
  }

  /**
   * Returns a function from a row of the newest snapshot to how much `count` of it grew in a second; null where it is not known.
   * `list` returns the rows of a snapshot, `key` says which rows are of the same thing.
   */
  rate(list, key, count) {
    const { last, before } = this;
    if (!before) return () => null;
    const old = new Map(list(before).map((row) => [key(row), count(row)]));
    return (row) => {
      const [now, then] = [count(row), old.get(key(row)) ?? 0];
      // A count that fell began anew.
      return now === null || then === null || now < then ? null : (now - then) / (last.time - before.time);
    };
  }
}
