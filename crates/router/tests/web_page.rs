//! The web page in a browser: what it shows, whom it asks, and how it looks on narrow screens.
//!
//! It needs Chromium. Without `BRICKWAY_WEB=1`, which `make test` and `make test-web` set, it is left out.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use netns::cluster::{Cluster, Plan, StorePlan};
use netns::router::{PROGRAM, start, warm_up};
use netns::{Network, eventually};
use serde_json::{Value, json};

const PAGE: &str = "http://127.0.0.1:8779/";
const RUN: &str = "eth1 eth2 --driver af_packet --web 127.0.0.1:8779";
const VIEWS: [&str; 5] = ["overview", "graph", "routes", "neighbours", "tables"];
/// The longest wait for an answer of the browser.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the tests run; says so if not.
fn is_wanted() -> bool {
    let is_wanted = std::env::var_os("BRICKWAY_WEB").is_some_and(|value| value == "1");
    if !is_wanted {
        testbed::leave_out("Chromium", "test-web");
    }
    is_wanted && netns::is_root()
}

/// Host a - router r - host b.
fn network() -> Network {
    let network = Network::new(&["r", "a", "b"]);
    for (host, link) in [("a", "1"), ("b", "2")] {
        let [ours, theirs] = ["1", "2"].map(|end| format!("02:00:00:00:0{link}:0{end}"));
        network.link(("r", &format!("eth{link}"), &ours), (host, "eth0", &theirs));
        network.ip("r", &format!("addr add 10.0.{link}.1/24 dev eth{link}"));
        network.ip(host, &format!("addr add 10.0.{link}.2/24 dev eth0"));
        network.ip(host, &format!("route add default via 10.0.{link}.1"));
    }
    network.forward("r");
    network
}

/// A browser with one page, over the DevTools protocol: objects of JSON, each with a zero behind it.
struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    last_id: u64,
    /// What the browser said that no request asked for.
    events: Vec<Value>,
}

impl Browser {
    /// Starts one on host r. `script` runs before those of the page.
    fn open(network: &Network, script: &str) -> Self {
        Self::open_on(network, "r", script)
    }

    /// Starts one on a host.
    fn open_on(network: &Network, host: &str, script: &str) -> Self {
        let profile = network.folder.path().join("browser");
        let options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                       --disable-background-networking --remote-debugging-pipe";
        // It reads requests from descriptor 3 and answers on 4.
        let line = format!(
            "exec chromium {options} --user-data-dir={} 3<&0 4>&1 </dev/null >/dev/null 2>&1",
            profile.display()
        );
        let mut command = network.on(host, "sh -ec");
        command.arg(line).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().unwrap();
        let (to, out) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (send, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                if send.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self { process, to, from, session: None, last_id: 0, events: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": script}));
        browser.call("Page.navigate", json!({"url": PAGE}));
        browser.wait_for("document.querySelector('.connection')?.textContent === '● connected'");
        browser
    }

    /// Asks the browser, and returns its answer.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({"id": self.last_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.to.write_all(request.to_string().as_bytes()).and_then(|()| self.to.write_all(&[0])).unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            match self.from.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(message) if message["id"] == self.last_id => {
                    assert!(message["error"].is_null(), "{method}: {message}");
                    return message["result"].clone();
                }
                Ok(event) => self.events.push(event),
                Err(RecvTimeoutError::Timeout) => panic!("{method}: no answer"),
                Err(RecvTimeoutError::Disconnected) => panic!("{method}: chromium ended; is it installed?"),
            }
        }
    }

    /// Returns the value of an expression in the page.
    /// Writes a picture of what is shown into the folder that `BRICKWAY_PICTURES` names, if it names one.
    fn draw(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("BRICKWAY_PICTURES") else { return };
        let picture = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let bytes = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(name).with_extension("png"), bytes).unwrap();
    }

    fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression holds.
    fn wait_for(&mut self, expression: &str) {
        let holds = eventually(|| {
            std::thread::sleep(Duration::from_millis(50));
            self.value(expression) == true
        });
        assert!(holds, "{expression}: {}", self.value("document.body.innerText"));
    }

    /// Opens a view, by its link.
    fn show(&mut self, view: &str) {
        self.value(&format!("document.querySelector('nav a[href=\"#{view}\"]').click()"));
        self.wait_for(&format!("!document.getElementById('{view}').hidden"));
    }

    fn resize(&mut self, width: u32) {
        let screen = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", screen);
    }

    /// Presses and releases a key.
    fn press(&mut self, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        let kinds = [("keyDown", text), ("keyUp", "")];
        for (kind, text) in kinds {
            let event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Errors of scripts, of the console, and of what was not loaded.
    fn errors(&mut self) -> Vec<Value> {
        self.value("0");
        let is_error = |event: &&Value| match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => event["params"]["type"] == "error",
            "Log.entryAdded" => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        self.events.iter().filter(is_error).cloned().collect()
    }

    /// The addresses that the page asked for.
    fn asked(&self) -> Vec<String> {
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.map(|event| event["params"]["request"]["url"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes end with it, and the group has all that have not.
        let group = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.process.wait();
    }
}

#[test]
fn the_overview_has_the_counts_of_the_api_and_asks_no_other_host() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let _router = start(&network, RUN);
    warm_up(&network, "a", &["10.0.2.2"]);
    network.run("a", "ping -n -q -c 1200 -i 0.001 10.0.2.2");
    let mut browser = Browser::open(&network, "");
    for view in VIEWS.iter().rev() {
        browser.show(view);
        std::thread::sleep(Duration::from_millis(1200));
    }
    let shown = "[...document.querySelectorAll('article[data-port]')].map((card) => [card.dataset.port,
        [...card.querySelectorAll('[data-count]')].map((node) => [node.dataset.count, node.value, node.textContent, node.title])])";
    let mut last = String::new();
    let agree = eventually(|| {
        let (_, text) = network.run("r", &format!("{PROGRAM} show ports --json"));
        let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let cards = browser.value(shown);
        last = format!("{cards}\n{text}");
        let all: Vec<&Value> = cards.as_array().unwrap().iter().collect();
        let is_same = |(card, row): (&&Value, &Value)| {
            let counts = card[1].as_array().unwrap();
            card[0] == row["name"]
                && counts.len() == 9
                && counts.iter().all(|count| {
                    let path = format!("/{}", count[0].as_str().unwrap().replace('.', "/"));
                    let wanted = row.pointer(&path).unwrap().as_u64().unwrap();
                    let wanted = wanted.to_string();
                    let [value, text, title] = [1, 2, 3].map(|at| count[at].as_str().unwrap());
                    value == wanted
                        && title.replace(',', "") == wanted
                        && (wanted.len() > 3 || text == wanted)
                })
        };
        all.len() == 2 && rows.len() == 2 && all.iter().zip(&rows).all(is_same)
    });
    assert!(agree, "{last}");
    assert!(last.contains("\"rx.packets\",\"12"), "over a thousand packets came: {last}");
    assert!(last.contains(",\"1.2"), "they are shown with a prefix: {last}");
    // The tab names the host, a line has all ports together, and each port says who forwarded.
    let host = browser.value("document.title.split(' – ')[1]");
    assert_eq!(host.as_str().unwrap(), rustix::system::uname().nodename().to_str().unwrap());
    let total = browser.value("document.getElementById('total').textContent");
    assert!(total.as_str().unwrap().starts_with("All ports: Received "), "{total}");
    let ways = browser.value("document.querySelector('article[data-port]').textContent");
    assert!(ways.as_str().unwrap().contains("by workers 9"), "{ways}");
    assert_eq!(browser.value("document.getElementById('list').hidden"), json!(true));
    let flows = browser.value("document.querySelector('#flows .nothing').textContent");
    assert!(flows.as_str().unwrap().ends_with("--web-flows, does"), "{flows}");
    browser.draw("overview");

    assert_eq!(browser.errors(), Vec::<Value>::new());
    let asked = browser.asked();
    let strangers: Vec<&String> =
        asked.iter().filter(|url| !url.starts_with(PAGE) && *url != "about:blank").collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    assert!(asked.contains(&format!("{PAGE}api/v1/events")), "{asked:?}");
}

/// Counts the snapshots that the page got.
const HEARD: &str = "
    globalThis.heard = 0;
    const parse = JSON.parse;
    JSON.parse = (text) => {
        const value = parse(text);
        if (value?.ports) globalThis.heard += 1;
        return value;
    };
";

#[test]
fn charts_have_the_minutes_before_the_page_was_opened() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let router = start(&network, RUN);
    let kept = || network.run("r", &format!("{PROGRAM} show history eth1 --json")).1.lines().count();
    assert!(eventually(|| kept() > 8), "{}", router.printed());
    let mut browser = Browser::open(&network, HEARD);
    let points = "(document.querySelector('article[data-port=eth1] path.rx')?.getAttribute('d') ?? '').split('L').length";
    browser.wait_for(&format!("{points} > globalThis.heard + 5"));
    let before = browser.value(points);
    // A router that began anew has not moved what the one before did.
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    drop(router);
    let _router = start(&network, RUN);
    browser.wait_for(&format!("document.getElementById('banner').hidden && {points} < {before}"));
}

#[test]
fn the_busiest_flows_are_sampled_while_the_overview_is_shown() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let _router = start(&network, &format!("{RUN} --web-flows"));
    warm_up(&network, "a", &["10.0.2.2"]);
    let _traffic = network.start("a", "ping -n -q -i 0.01 10.0.2.2");
    let mut browser = Browser::open(&network, HEARD);
    browser.wait_for(
        "[...document.querySelectorAll('#flows tbody tr')].some((row) => row.textContent.includes('ICMP 10.0.1.2 > 10.0.2.2'))",
    );
    assert_eq!(browser.value("document.querySelectorAll('#flows tbody tr').length <= 5"), true);
    browser.show("graph");
    let questions = |browser: &Browser| browser.asked().iter().filter(|url| url.ends_with("/flows?")).count();
    let before = questions(&browser);
    assert!(before > 0, "{:?}", browser.asked());
    let heard = browser.value("globalThis.heard").as_u64().unwrap();
    browser.wait_for(&format!("globalThis.heard > {}", heard + 8));
    assert_eq!(questions(&browser), before);
    browser.show("overview");
    let is_asked = eventually(|| {
        browser.value("0");
        questions(&browser) > before
    });
    assert!(is_asked, "{:?}", browser.asked());
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

#[test]
fn no_view_is_wider_than_its_screen() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let _router = start(&network, RUN);
    warm_up(&network, "a", &["10.0.2.2"]);
    let mut browser = Browser::open(&network, "");
    for width in [360, 768, 2560] {
        browser.resize(width);
        for view in VIEWS {
            browser.show(view);
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(browser.value("innerWidth"), width);
            let excess = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(browser.value(excess), 0, "{view} at {width} pixels");
        }
    }
}

#[test]
fn a_narrow_table_counts_the_columns_that_it_hides() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let _router = start(&network, &format!("{RUN} --web-flows"));
    warm_up(&network, "a", &["10.0.2.2"]);
    let _traffic = network.start("a", "ping -n -q -i 0.01 10.0.2.2");
    let mut browser = Browser::open(&network, "");
    browser.wait_for("document.querySelectorAll('#flows tbody tr').length > 0");
    browser.resize(1280);
    let hints = "[...document.querySelectorAll('#overview .hint')].filter((hint) => !hint.hidden).length";
    browser.wait_for("document.querySelectorAll('#workers tbody tr').length > 0");
    browser.wait_for(&format!("{hints} === 0"));
    browser.resize(360);
    // The first column is seen, the last one is not.
    let outside = "(() => {
        const right = document.querySelector('#workers .scroll').getBoundingClientRect().right;
        return [...document.querySelectorAll('#workers th')].filter((head) => head.getBoundingClientRect().right > right + 1).length;
    })()";
    let hint = "document.querySelector('#workers .hint:not([hidden])')?.textContent";
    let is_shown = |columns: &str| {
        format!(
            "{hint} === `${{{columns}}} columns hidden; scroll sideways, turn the device or widen the window`"
        )
    };
    browser.wait_for(&format!("{outside} > 1 && {}", is_shown(outside)));
    let bottom = "document.querySelector('#workers .hint').getBoundingClientRect().bottom";
    let top = "document.querySelector('#workers .scroll').getBoundingClientRect().top";
    assert_eq!(browser.value(&format!("{bottom} <= {top}")), true, "it stands above the rows");
    // At the other end the first ones are hidden.
    browser.value("document.querySelector('#workers .scroll').scrollLeft = 10000");
    browser.wait_for(&format!("{outside} === 0 && {hint}.includes(' hidden; ')"));
    browser.resize(1280);
    browser.wait_for(&format!("{hints} === 0"));
    browser.draw("overview-1280");
    browser.resize(360);
    browser.wait_for(&format!("{hints} > 0"));
    browser.draw("overview-360");
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

/// Adds markup to all names and texts of the router.
const MARKED: &str = r#"
    const parse = JSON.parse;
    JSON.parse = (text) => parse(text, (_, value) =>
        typeof value === 'string' ? `${value}"'<b class="evil">x</b><img src=x onerror=evil()>` : value);
"#;

#[test]
fn names_with_markup_are_text() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let _router = start(&network, RUN);
    warm_up(&network, "a", &["10.0.2.2"]);
    let mut browser = Browser::open(&network, MARKED);
    for view in VIEWS {
        browser.show(view);
        let text = format!("document.getElementById('{view}').textContent");
        browser.wait_for(&format!("{text}.includes('<b class=')"));
    }
    browser.show("graph");
    browser.value("document.querySelector('.element').dispatchEvent(new PointerEvent('pointerenter'))");
    browser.wait_for("document.querySelector('#details h2').textContent.includes('<b class=')");
    assert_eq!(browser.value("document.querySelectorAll('.evil, main img').length"), 0);
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

/// A cluster of so many nodes in the place of what the router says of one: every node is wired to all others, the third is dead.
/// What it sends grows from node to node.
fn made_up_cluster(nodes: usize, mark: &str) -> String {
    r#"
    const parsed = JSON.parse;
    JSON.parse = (text) => {
        const value = parsed(text);
        if (!Array.isArray(value?.cluster)) return value;
        const [count, second] = [NODES, Math.floor(value.time)];
        const name = (at) => `server-${at + 1}MARK`;
        const nodes = Array.from({ length: count }, (_, at) => {
            const [isReached, each] = [at !== 2, 1000 * (at + 1)];
            const links = Array.from({ length: count }, (_, to) => to).filter((to) => to !== at).map((to, link) => ({
                link, to: name(to), interface: `fab${link}`, is_up: isReached && to !== 2, problem: '', path: 'kernel',
                received: 5, sent: 6, direct_bytes: 900 * each * second, balanced_bytes: 80 * each * second,
                relayed_bytes: 20 * each * second,
            }));
            const moved = { packets: each * second, bytes: 1000 * each * second };
            return {
                kind: 'node', node: name(at), number: at, role: 'edge+route', weight: 1, is_reached: isReached,
                state: isReached ? (at === 0 ? 'leads' : 'member') : 'away', leads: at === 0, lag: isReached ? 0 : null,
                counted_at: second, input: moved, routed: each * second, output: moved, direct: 9 * second, direct_bytes: 90 * second,
                balanced: second, balanced_bytes: 10 * second, moved: 3, link_full: 0, links,
            };
        });
        const head = { kind: 'cluster', name: 'made up', topology: `mesh(${count})`, nodes: count, here: name(1), leader: name(0), problem: null };
        const event = { kind: 'event', time: value.time, text: `node '${name(2)}' is not reached any more` };
        return { ...value, cluster: [head, ...nodes, event] };
    };
    "#
    .replace("NODES", &nodes.to_string())
    .replace("MARK", mark)
}

#[test]
fn a_cluster_of_64_nodes_is_readable_on_any_screen() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let _router = start(&network, RUN);
    let mut browser = Browser::open(&network, &made_up_cluster(64, ""));
    browser.show("cluster");
    for width in [360, 768, 1280, 2560] {
        browser.resize(width);
        browser.wait_for("document.querySelectorAll('#cluster .server').length === 64");
        std::thread::sleep(Duration::from_millis(300));
        let excess = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.value(excess), 0, "{width} pixels");
        let crowded = "(() => {
            const box = document.getElementById('cluster-map').getBoundingClientRect();
            const discs = [...document.querySelectorAll('.server .disc')].map((disc) => disc.getBoundingClientRect());
            const middle = (disc) => [disc.left + disc.width / 2, disc.top + disc.height / 2];
            const apart = (a, b) => Math.hypot(middle(a)[0] - middle(b)[0], middle(a)[1] - middle(b)[1]);
            const outside = [...document.querySelectorAll('.server .name')].map((name) => name.getBoundingClientRect())
                .filter(({ left, right, top, bottom }) => left < box.left || right > box.right || top < box.top || bottom > box.bottom);
            const near = discs.flatMap((a, at) => discs.slice(at + 1).filter((b) => apart(a, b) < a.width));
            return [outside.length, near.length];
        })()";
        assert_eq!(browser.value(crowded), json!([0, 0]), "{width} pixels");
    }
    assert_eq!(browser.value("document.querySelectorAll('.wire').length"), 64 * 63 / 2);
    assert_eq!(browser.value("document.querySelectorAll('.server.gone').length"), 1);
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

#[test]
fn names_of_a_cluster_with_markup_are_text_and_keys_lead_from_node_to_node() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let _router = start(&network, RUN);
    let mut browser =
        Browser::open(&network, &made_up_cluster(4, "\"'<b class=evil>x</b><img src=x onerror=evil()>"));
    browser.show("cluster");
    browser.wait_for("document.querySelectorAll('#cluster .server').length === 4");
    browser.value("document.querySelector('.server').focus()");
    browser.press("ArrowRight", 39);
    browser.press("ArrowRight", 39);
    browser.press("ArrowLeft", 37);
    assert_eq!(browser.value("document.activeElement.dataset.node.startsWith('server-2\"')"), true);
    browser.wait_for("document.querySelector('#cluster-details h2').textContent.includes('<b class=evil>')");
    browser.wait_for("document.querySelectorAll('#cluster-details tbody tr').length === 3");
    // Two seconds give rates: of 1,000,000 bytes a second nine tenths are direct.
    browser
        .wait_for("document.querySelector('#cluster-details tbody tr').textContent.includes('14.4 Mbit/s')");
    browser.wait_for("[...document.querySelectorAll('.wire title')].some((title) => title.textContent.includes('90 % of it direct'))");
    browser.wait_for("document.getElementById('cluster-even').textContent.includes('input 1.71 (server-4')");
    assert_eq!(browser.value("document.querySelectorAll('.evil, main img').length"), 0);
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

#[test]
fn a_map_of_the_cluster_has_the_numbers_of_the_metrics_and_shows_who_died() {
    if !is_wanted() {
        return;
    }
    let settings = "hello = \"50ms\"\n[web]\nlisten = \"127.0.0.1:8779\"\n";
    let mut cluster = Cluster::new(Plan { store: StorePlan::Hosted, settings, ..Plan::default() });
    let names = cluster.names.clone();
    cluster.start_all(&names);
    let leader = cluster.next_leader("");
    cluster.is_whole(&names);
    cluster.all_reach_all(&[1, 2, 3, 4]);
    let mut browser = Browser::open_on(&cluster.network, "a", "");
    browser.show("cluster");
    browser.wait_for("document.querySelectorAll('.server:not(.gone)').length === 4");
    let leads = "[...document.querySelectorAll('.server.leads')].map((node) => node.dataset.node).join()";
    assert_eq!(browser.value(leads), leader);
    browser.wait_for("document.querySelectorAll('.wire:not(.down)').length === 6");

    browser.value("document.querySelector('.server[data-node=a]').focus()");
    let same = "fetch('/metrics').then((answer) => answer.text()).then((text) => {
        const metric = (name) => text.split('\\n').find((line) => line.startsWith(`brickway_cluster_${name} `))?.split(' ').at(-1);
        const columns = { log_lag: 3, direct_bytes_total: 8, balanced_bytes_total: 9, flowlets_moved_total: 11 };
        const wrong = [];
        const compare = (what, shown, wanted) => shown === wanted && wanted !== undefined || wrong.push([what, shown, wanted]);
        for (const row of document.querySelectorAll('#cluster-nodes tbody tr'))
            for (const [name, at] of Object.entries(columns))
                compare(name, row.cells[at].firstChild.value, metric(`${name}{node=\"${row.dataset.node}\"}`));
        document.querySelectorAll('#cluster-details tbody tr').forEach((row, link) =>
            ['direct', 'balanced', 'relayed'].forEach((way, at) => compare(way, row.cells[at + 1].firstChild.value,
                metric(`link_bytes_total{link=\"${link}\",to=\"${row.dataset.to}\",way=\"${way}\"}`))));
        return JSON.stringify(wrong);
    })";
    let agree = eventually(|| browser.value(same) == "[]");
    assert!(agree, "{}", browser.value(same));
    let bytes = "document.querySelector('#cluster-nodes tr[data-node=a]').cells[8].firstChild.value";
    assert_ne!(browser.value(bytes), "0");
    for width in [360, 2560] {
        browser.resize(width);
        std::thread::sleep(Duration::from_millis(300));
        let excess = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.value(excess), 0, "{width} pixels");
    }

    // The fabric misses its hellos long before the store misses the node.
    let dies = names.iter().rev().find(|name| **name != leader).unwrap().clone();
    let begin = Instant::now();
    cluster.kill(&dies);
    browser
        .wait_for(&format!("document.querySelector('.server[data-node={dies}]').classList.contains('gone')"));
    println!("grey after {:.2} s", begin.elapsed().as_secs_f64());
    assert_eq!(browser.value("document.querySelectorAll('.server.gone').length"), 1);
    let gone = format!("node '{dies}' is not reached any more");
    let events =
        "[...document.querySelectorAll('#cluster-events tbody tr')].map((row) => row.cells[1].textContent)";
    browser.wait_for(&format!("{events}.includes(\"{gone}\")"));
    let left = format!(
        "{events}.findIndex((text) => text.startsWith(\"node '{dies}' is not a member any more: \"))"
    );
    browser.wait_for(&format!("{left} >= 0"));
    let order = format!("{left} < {events}.indexOf(\"{gone}\")");
    assert_eq!(browser.value(&order), true, "the newest comes first: {}", browser.value(events));
    cluster.start(&dies);
    browser.wait_for("document.querySelectorAll('.server.gone').length === 0");
    assert_eq!(browser.errors(), Vec::<Value>::new());
    let strangers: Vec<String> =
        browser.asked().into_iter().filter(|url| !url.starts_with(PAGE) && url != "about:blank").collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}

#[test]
fn a_lost_router_is_said_and_found_again() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let router = start(&network, RUN);
    let mut browser = Browser::open(&network, "");
    assert_eq!(browser.value("document.getElementById('banner').hidden"), true);
    let old = browser.value("document.getElementById('system').textContent");
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    browser
        .wait_for("document.getElementById('banner').textContent.startsWith('No connection to the router.')");
    assert_eq!(browser.value("document.getElementById('banner').hidden"), false);
    assert_eq!(browser.value("document.body.classList.contains('stale')"), true);
    assert_eq!(browser.value("document.getElementById('system').textContent"), old, "old values stay");
    drop(router);
    let _router = start(&network, RUN);
    browser
        .wait_for("document.getElementById('banner').hidden && !document.body.classList.contains('stale')");
}

/// Routes are shown up to this number.
const MOST: usize = 1000;

#[test]
fn routes_are_shown_up_to_a_number_and_searched() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let routes = (0..3 * MOST)
        .map(|number| format!("route add 172.16.{}.{}/32 via 10.0.2.2", number / 250, number % 250));
    network.ip_batch("r", &routes.collect::<Vec<String>>());
    let _router = start(&network, RUN);
    let mut browser = Browser::open(&network, "");
    browser.show("routes");
    let rows = "document.querySelectorAll('#routes tbody tr').length";
    let status = "document.querySelector('#routes [role=status]').textContent";
    browser.wait_for(&format!("{status}.includes('The first 1,000 are shown; there are more')"));
    assert_eq!(browser.value(rows), MOST);
    let mut search = |text: &str, wanted: &str| {
        browser.value(&format!(
            "(() => {{ const input = document.querySelector('#routes input[type=search]');
            input.value = '{text}'; input.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
        ));
        browser.wait_for(&format!("{status} === '{wanted} found.'"));
        browser.value("[...document.querySelectorAll('#routes tbody tr')].map((row) => row.cells[0].textContent).join()")
    };
    assert_eq!(search("172.16.3.4/31", "2"), "172.16.3.4/32,172.16.3.5/32");
    assert_eq!(search("172.16.11.7", "1"), "172.16.11.7/32");
    assert_eq!(search("16.11.24", "11").as_str().unwrap().split(',').count(), 11);
    assert_eq!(search("no such thing", "0"), "");
    assert_eq!(browser.errors(), Vec::<Value>::new());
}

#[test]
fn keys_lead_through_views_and_elements() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let _router = start(&network, RUN);
    warm_up(&network, "a", &["10.0.2.2"]);
    let mut browser = Browser::open(&network, "");
    let focused = "document.activeElement.textContent";
    let mut reached = false;
    for _ in 0..5 {
        browser.press("Tab", 9);
        reached = reached || browser.value(focused) == "Graph";
        if reached {
            break;
        }
    }
    assert!(reached, "the second link is reached by Tab");
    browser.press("Enter", 13);
    browser.wait_for("!document.getElementById('graph').hidden");
    browser.wait_for("document.querySelectorAll('.element').length > 5");
    let is_element = "document.activeElement.classList.contains('element')";
    for _ in 0..15 {
        browser.press("Tab", 9);
        if browser.value(is_element) == true {
            break;
        }
    }
    assert_eq!(browser.value(is_element), true, "elements are reached by Tab");
    browser.wait_for(
        "document.activeElement.getAttribute('aria-label').startsWith(\
        document.querySelector('#details h2').textContent.split(' :: ')[0])",
    );
    let stage = "document.querySelector('#canvas svg > g').getAttribute('transform')";
    let before = browser.value(stage);
    browser.press("+", 187);
    let zoomed = browser.value(stage);
    assert_ne!(zoomed, before);
    browser.press("ArrowLeft", 37);
    assert_ne!(browser.value(stage), zoomed);
}

/// Checks the layout of random graphs: every element has a place, edges lead to later layers but for those that close cycles, of
/// which an acyclic graph has none, and no two elements of a layer overlap. Returns what is wrong.
const LAYOUTS: &str = r"import('/layout.js').then(({ layOut }) => {
    let seed = 1;
    const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
    const problems = [];
    for (let run = 0; run < 200; run += 1) {
        const [count, isAcyclic] = [1 + random(40), run % 2 === 0];
        const nodes = Array.from({ length: count }, (_, at) => `n${at}`);
        const breadth = (name) => 10 + Number(name.slice(1)) % 7 * 20;
        const edges = Array.from({ length: random(2 * count) }, () => [random(count), random(count)])
            .filter(([a, b]) => !isAcyclic || a !== b)
            .map((ends) => (isAcyclic ? ends.sort((a, b) => a - b) : ends))
            .map(([a, b]) => ({ from: nodes[a], to: nodes[b] }));
        const { places, ways, layers, breadth: all } = layOut(nodes, edges, breadth, 15);
        const spans = Array.from({ length: layers }, () => []);
        for (const node of nodes) {
            const { layer, place } = places.get(node);
            spans[layer].push([place - breadth(node) / 2, place + breadth(node) / 2]);
        }
        for (const span of spans.map((span) => span.sort(([a], [b]) => a - b))) {
            if (span.some(([begin, end]) => !(begin > -1e-6) || !(end < all + 1e-6))) problems.push(`${run}: outside`);
            if (span.slice(1).some(([begin], at) => !(begin - span[at][1] > 15 - 1e-6))) problems.push(`${run}: overlap`);
        }
        for (const edge of edges) {
            const way = ways.get(edge);
            if (edge.from === edge.to) continue;
            if (way[0] !== places.get(edge.from) || way.at(-1) !== places.get(edge.to)) problems.push(`${run}: ends`);
            const steps = way.slice(1).map((point, at) => point.layer - way[at].layer);
            const isStraight = steps.every((step) => step === 1) || !isAcyclic && steps.every((step) => step === -1);
            if (!isStraight) problems.push(`${run}: steps ${steps}`);
        }
    }
    return problems.join();
})";

/// Numbers of the API, and how the page writes them.
const NUMBERS: [(f64, &str); 12] = [
    (0.0, "0"),
    (999.0, "999"),
    (1000.0, "1k"),
    (1234.0, "1.23k"),
    (0.123_456, "0.123"),
    (12.345, "12.3"),
    (999.7, "1k"),
    (999_499.0, "999k"),
    (999_500.0, "1M"),
    (123_456_789.0, "123M"),
    (4_000_000_000.0, "4G"),
    (1.5e18, "1.5E"),
];

#[test]
fn numbers_rates_and_layouts_are_right() {
    if !is_wanted() {
        return;
    }
    let network = network();
    let _router = start(&network, RUN);
    let mut browser = Browser::open(&network, "");
    for (number, wanted) in NUMBERS {
        assert_eq!(
            browser.value(&format!("import('/dom.js').then(({{ short }}) => short({number}))")),
            wanted
        );
    }
    // A count that grows, one that falls, one that is new, and a router that began anew.
    let rates = "import('/history.js').then(({ History }) => {
        const history = new History();
        const add = (time, pid, drops) => history.add({ time, system: { pid }, ports: [], drops });
        const rates = () => {
            const rate = history.rate((snapshot) => snapshot.drops, (row) => row.name, (row) => row.packets);
            return history.last.drops.map(rate);
        };
        add(10, 1, [{ name: 'a', packets: 5 }, { name: 'b', packets: 9 }]);
        const all = [rates()];
        add(12, 1, [{ name: 'a', packets: 25 }, { name: 'b', packets: 3 }, { name: 'c', packets: 4 }]);
        all.push(rates());
        add(13, 2, [{ name: 'a', packets: 30 }]);
        all.push(rates());
        return all;
    })";
    let wanted = json!([[null, null], [10, null, 2], [null]]);
    assert_eq!(browser.value(rates), wanted);
    assert_eq!(browser.value(LAYOUTS), "");
}
