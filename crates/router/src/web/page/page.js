// The page: which view is shown, and the state of the router as it comes, once a second.

import { Cluster } from './cluster.js';
import { write } from './dom.js';
import { Graph } from './graph.js';
import { History } from './history.js';
import { Overview } from './overview.js';
import { neighbours, routes } from './search.js';
import { Tables } from './tables.js';

/** The time after which a router that says nothing counts as lost, in milliseconds. */
const SILENCE = 5000;
/** The time until another try, where the browser does not try by itself. */
const RETRY = 2000;

const history = new History(() => show());
const views = {
  overview: new Overview(history),
  graph: new Graph(history),
  cluster: new Cluster(history),
  routes: routes(history),
  neighbours: neighbours(history),
  tables: new Tables(history),
};
let shown;

/** Shows the view that the address names. */
function navigate() {
  const wanted = location.hash.slice(1);
  // '#main' is where the link to the content leads.
  if (!Object.hasOwn(views, wanted) && shown) return;
  views[shown]?.close?.();
  shown = Object.hasOwn(views, wanted) ? wanted : 'overview';
  for (const view of Object.keys(views)) document.getElementById(view).hidden = view !== shown;
  for (const link of document.querySelectorAll('nav a')) {
    if (link.hash === `#${shown}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  name();
  views[shown].open?.();
  show();
}

/** Names the page after its view and the router's host, by which tabs are told apart. */
function name() {
  const host = history.last?.system?.host;
  document.title = [`${shown[0].toUpperCase()}${shown.slice(1)}`, host, 'Brickway'].filter(Boolean).join(' – ');
}

function show() {
  if (history.last && !document.hidden) views[shown].show();
}

const banner = document.getElementById('banner');
const connection = document.getElementById('connection');
let [source, lastHeard, isLost] = [null, 0, false];

const time = (when) => new Date(when).toLocaleTimeString('en-GB');

function lose() {
  if (isLost) return;
  isLost = true;
  history.breakOff();
  document.body.classList.add('stale');
  write(connection, '○ not connected');
  const since = lastHeard ? ` What you see is of ${time(lastHeard)}.` : '';
  write(banner, `No connection to the router.${since} Trying again …`);
  banner.hidden = false;
}

function connect() {
  source?.close();
  source = new EventSource('api/v1/events');
  source.onmessage = (event) => {
    lastHeard = Date.now();
    isLost = false;
    banner.hidden = true;
    document.body.classList.remove('stale');
    history.add(JSON.parse(event.data));
    views.cluster.add(history.last);
    document.getElementById('cluster-link').hidden = !Cluster.isThere(history.last);
    write(connection, '● connected');
    name();
    show();
  };
  source.onerror = lose;
}

write(connection, '○ connecting');
connect();
let lastTry = Date.now();
setInterval(() => {
  const now = Date.now();
  if (now - Math.max(lastHeard, lastTry) > SILENCE) lose();
  // A refused connection, or one in which nothing comes, the browser leaves as it is.
  if (
    isLost &&
    now - lastTry > RETRY &&
    (source.readyState === EventSource.CLOSED || now - lastTry > 2 * SILENCE)
  ) {
    lastTry = now;
    connect();
  }
}, 1000);
addEventListener('hashchange', navigate);
document.addEventListener('visibilitychange', show);
navigate();
