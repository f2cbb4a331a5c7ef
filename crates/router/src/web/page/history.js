// The snapshots of the last minutes: the newest in full, of the others what charts show.

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

  add(snapshot) {
    const { last } = this;
    // Who comes twice within a second gets the same one.
    if (snapshot.time === last?.time && !this.isBroken) return;
    const step = last ? snapshot.time - last.time : 0;
    const isNewRun = last?.system?.pid !== snapshot.system?.pid;
    if (isNewRun) this.ports.clear();
    this.before = last && !isNewRun && !this.isBroken && step > 0 && step < LONGEST_STEP ? last : null;
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
