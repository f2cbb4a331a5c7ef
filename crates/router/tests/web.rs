//! Metrics and the API over HTTP: what they say, whom they answer, and that nobody who asks costs a packet.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use netns::router::{PROGRAM, start, warm_up};
use netns::{Network, eventually};
use serde_json::Value;

/// Host a - router r - host b.
fn network() -> Network {
    let network = Network::new(&["r", "a", "b"]);
    for (host, link) in [("a", "1"), ("b", "2")] {
        network.link(
            ("r", &format!("eth{link}"), &format!("02:00:00:00:0{link}:01")),
            (host, "eth0", &format!("02:00:00:00:0{link}:02")),
        );
        network.ip("r", &format!("addr add 10.0.{link}.1/24 dev eth{link}"));
        network.ip(host, &format!("addr add 10.0.{link}.2/24 dev eth0"));
        network.ip(host, &format!("route add default via 10.0.{link}.1"));
    }
    network.ip("r", "link set lo up");
    network.forward("r");
    network
}

const METRICS: &str = "127.0.0.1:9779";
const WEB: &str = "127.0.0.1:8779";

/// The status, and all that came, of a request in namespace r.
fn get(network: &Network, address: &str, path: &str, headers: &str) -> (u16, String) {
    network.namespace("r").enter(|| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let host = if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
        // A connection that is one too many may be closed by now.
        let _ = write!(stream, "GET {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
        let mut text = Vec::new();
        // An answer that breaks off is what came.
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        let status = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        (status.unwrap_or(0), text)
    })
}

/// The value of a metric with these labels.
fn metric(text: &str, name: &str) -> f64 {
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line.trim().parse().unwrap()
}

#[test]
fn metrics_and_the_api_say_what_show_says() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    // What has no route is to come to the graph.
    let ports = "eth1?mode=generic eth2?mode=generic";
    let router = start(&network, &format!("{ports} --metrics {METRICS} --web {WEB}"));
    warm_up(&network, "a", &["10.0.2.2"]);
    network.run("a", "ping -n -q -c 3 -i 0.2 -W 0.2 10.9.9.9");
    let shown = |what: &str| -> Vec<Value> {
        let (_, text) = network.run("r", &format!("{PROGRAM} show {what} --json"));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    // A snapshot may be a second old.
    let mut last = String::new();
    let agree = eventually(|| {
        let (status, text) = get(&network, METRICS, "/metrics", "");
        assert_eq!(status, 200, "{text}");
        let ports = shown("ports");
        last = format!("{ports:?} {text}");
        ports.iter().all(|port| {
            [("rx", "receive"), ("tx", "transmit")].iter().all(|(way, direction)| {
                ["packets", "bytes"].iter().all(|of| {
                    let labels = format!("{{port={},direction=\"{direction}\"}}", port["name"]);
                    let theirs = metric(&text, &format!("brickway_port_{of}_total{labels}"));
                    port[*way][*of].as_f64() == Some(theirs)
                })
            })
        })
    });
    assert!(agree, "{last}");
    let (_, text) = get(&network, METRICS, "/metrics", "");
    let no_route = "brickway_punted_total{element=\"rt4\",class=\"FIBLookup\",reason=\"no route\"}";
    assert!(metric(&text, no_route) >= 3.0, "{text}");
    assert!(metric(&text, "brickway_routes{table=\"254\",family=\"IPv4\",kind=\"byte24\"}") > 0.0);
    assert_eq!(metric(&text, "brickway_netlink_overruns_total "), 0.0);
    assert!(!text.contains("brickway_drift_routes"), "nothing was compared yet: {text}");
    network.run("r", &format!("{PROGRAM} set tables.check_seconds 0.2"));
    let compared = eventually(|| {
        let (_, text) = get(&network, METRICS, "/metrics", "");
        text.contains("\nbrickway_drift_routes 0\n")
            && text.contains("\nbrickway_drift_check_timestamp_seconds 1")
    });
    assert!(compared, "{}", router.printed());

    let history = || get(&network, WEB, "/api/v1/history?port=eth1", "");
    assert!(eventually(|| history().1.contains("{\"time\":\"2")), "{}", history().1);
    let (status, text) = history();
    assert!(status == 200 && text.contains("cache-control: no-store") && !text.contains("eth2"), "{text}");
    assert_eq!(get(&network, WEB, "/api/v1/history?port=eth9", "").0, 409);
    assert_eq!(get(&network, METRICS, "/api/v1/history", "").0, 404);

    let (status, text) = get(&network, WEB, "/api/v1/routes?protocol=kernel&within=10.0.1.0%2F24", "");
    assert!(status == 200 && text.contains("\"prefix\":\"10.0.1.0/24\""), "{text}");
    assert!(!text.contains("10.0.2.0/24"), "{text}");
    let (status, text) = get(&network, WEB, "/api/v1/routes?colour=red", "");
    assert!(status == 400 && text.contains("unknown field 'colour'"), "{text}");
    for private in ["cost", "capture", "trace?count=1"] {
        assert_eq!(get(&network, WEB, &format!("/api/v1/{private}"), "").0, 403, "{private}");
    }
    assert_eq!(get(&network, WEB, "/api/v1/secrets", "").0, 400);
    assert_eq!(get(&network, WEB, "/", "").0, 200);
    let (status, text) = get(&network, WEB, "/api/v1/openapi.json", "");
    let document: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((status, document["openapi"].as_str()), (200, Some("3.1.0")));
    assert!(document["components"]["schemas"]["PortRow"]["properties"]["mtu"].is_object(), "{text}");
    // Who only scrapes sees no more than metrics.
    assert_eq!(get(&network, METRICS, "/api/v1/routes", "").0, 404);
    // A page of another site that calls this host by a name of its own.
    assert_eq!(get(&network, WEB, "/api/v1/routes", "Host: evil.example\r\n").0, 421);
    // A program that does not say whom it asks.
    assert_eq!(get(&network, METRICS, "/metrics", "X-Host: none\r\n").0, 200);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

#[test]
fn flows_are_shown_where_the_settings_permit_it() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let router = start(&network, &format!("eth1 eth2 --web {WEB}"));
    let (status, text) = get(&network, WEB, "/api/v1/flows", "");
    assert!(status == 200 && text.contains("\"flows\":[]") && text.contains("--web-flows, does"), "{text}");
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    drop(router);
    let router = start(&network, &format!("eth1 eth2 --web {WEB} --metrics {METRICS} --web-flows"));
    warm_up(&network, "a", &["10.0.2.2"]);
    let _traffic = network.start("a", "ping -n -q -i 0.01 10.0.2.2");
    let mut last = String::new();
    let is_shown = eventually(|| {
        last = get(&network, WEB, "/api/v1/flows", "").1;
        last.contains("\"flow\":\"ICMP 10.0.1.2 > 10.0.2.2\"") && last.contains("\"problem\":null")
    });
    assert!(is_shown, "{last}");
    assert_eq!(get(&network, WEB, "/api/v1/flows", "Host: evil.example\r\n").0, 421);
    assert_eq!(get(&network, WEB, "/api/v1/capture", "").0, 403);
    assert_eq!(get(&network, METRICS, "/api/v1/flows", "").0, 404);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

/// What reads files, or does something when it is read, is not for those who may look.
#[test]
fn no_handler_that_acts_is_read() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let secret = network.folder.write("secret", "a word of root's\n");
    let config = network.folder.write(
        "acts.click",
        "Idle -> sw :: Switch(0) -> Discard; sw[1] -> Discard;
         s :: Script(TYPE PASSIVE, write sw.switch 1, return 7);
         e :: Script(TYPE PASSIVE, write sw.switch 1, export x 1); p :: Script(TYPE PROXY, write sw.switch 1);
         // No worker has it.
         Idle -> Punt -> k :: Script(TYPE PACKET, write sw.switch 1, return 0) -> Discard;",
    );
    let router = start(&network, &format!("{config} --web {WEB}"));
    // It is answered once a second.
    let get_when_free = |path: &str, headers: &str| {
        let mut answer = (429, String::new());
        eventually(|| {
            answer = get(&network, WEB, path, headers);
            answer.0 != 429
        });
        answer
    };
    let read = |name: &str| get_when_free(&format!("/api/v1/handlers?name={}", name.replace(' ', "%20")), "");
    assert!(read("sw.switch").1.contains("\"0\""), "{}", read("sw.switch").1);
    for name in
        [&format!("s.cat {secret}"), &format!("s.catq {secret}"), "s.kill 0 1", &format!("k.cat {secret}")]
    {
        let (status, text) = read(name);
        assert!(status != 200 && text.contains("is for scripts of the configuration only"), "{name}: {text}");
    }
    for name in ["s.run", "s.shift args", "p.anything", "e.run", "s.run 1", "k.run"] {
        let (status, text) = read(name);
        assert!(status != 200 && text.contains("does something"), "{name}: {text}");
    }
    assert!(read("s.add 1 2").1.contains("\"3\""), "{}", read("s.add 1 2").1);
    assert!(read("sw.switch").1.contains("\"0\""), "{}", read("sw.switch").1);
    // An image in a page of another site.
    let other = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n";
    assert_eq!(get_when_free("/api/v1/handlers?name=sw.switch", other).0, 421);
    let followed = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
    assert_eq!(get(&network, WEB, "/", followed).0, 200);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

#[test]
fn keys_in_a_configuration_are_not_shown() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let file = network.folder.file("keys.click");
    let config = "rt :: RadixIPsecLookup(10/8 1 234 SECRETKEYAAAAAAA SECRETKEYBBBBBBB 300 64);
        Idle -> rt; rt[0] -> Discard; rt[1] -> Discard;
        nat :: IPRewriter(pattern 10.0.0.1 1024-65535 - - 0 0); Idle -> nat -> Discard;";
    std::fs::write(&file, config).unwrap();
    let _router = start(&network, &format!("{file} --web {WEB}"));
    let (status, text) = get(&network, WEB, "/api/v1/config?click=true", "");
    assert!(status == 200 && text.contains("RadixIPsecLookup(10/8 1 234 *** ***"), "{text}");
    assert!(!text.contains("SECRET"), "{text}");
    // What an element's class counts is a metric.
    let (_, text) = get(&network, WEB, "/metrics", "");
    assert_eq!(metric(&text, "brickway_nat_mappings{element=\"nat\",class=\"IPRewriter\"}"), 0.0);
}

#[test]
fn without_being_asked_there_is_no_listener() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let _router = start(&network, "eth1 eth2");
    let (_, text) = network.run("r", "cat /proc/net/tcp /proc/net/tcp6");
    // 0A is the state of a listener.
    assert!(!text.lines().any(|line| line.split_whitespace().nth(3) == Some("0A")), "{text}");
}

#[test]
fn clients_that_say_and_take_nothing_cost_nobody_a_packet() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let router = start(&network, &format!("eth1 eth2 --metrics {METRICS} --web {WEB}"));
    warm_up(&network, "a", &["10.0.2.2"]);
    let silent: Vec<TcpStream> = network.namespace("r").enter(|| {
        let silent = (0..80).map(|_| TcpStream::connect(WEB).unwrap());
        let mut silent: Vec<TcpStream> = silent.collect();
        // Some ask for all that there is, for ever, and read nothing of it.
        for (number, stream) in silent.iter_mut().enumerate().take(60) {
            stream.set_nonblocking(true).unwrap();
            let (path, host, times) = match number % 3 {
                0 => ("/api/v1/events", "localhost", 1),
                1 => ("/metrics", "localhost", 200),
                _ => ("/metrics", "evil.example", 200),
            };
            let asked = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").repeat(times);
            // What does not fit is not needed.
            let _ = stream.write(asked.as_bytes());
        }
        silent
    });
    assert_eq!(network.answers("a", "10.0.2.2"), 10);
    assert_eq!(get(&network, METRICS, "/metrics", "").0, 200, "the other listener has its own connections");
    let (shown, text) = network.run("r", &format!("{PROGRAM} show ports"));
    assert!(shown, "{text}");
    // Those that say nothing are cut off, so others get in.
    let answered = eventually(|| get(&network, WEB, "/api/v1/system", "").0 == 200);
    assert!(answered);
    drop(silent);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

#[test]
fn another_user_does_not_keep_root_from_metrics() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let router = start(&network, &format!("eth1 eth2 --metrics {METRICS}"));
    // He makes each connection again when it is closed, and says half a request, for as long as root asks.
    let script = "hold() { while sleep 0.1; do exec 3<>/dev/tcp/127.0.0.1/9779 && printf 'GET / HT' >&3; read -t 9 -u 3; done; }
        for number in {1..80}; do hold 2>/dev/null & done; sleep 1; echo held; wait";
    let file = network.folder.write("hold.sh", script);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(network.folder.path(), open).unwrap();
    let holder = network.start("r", &format!("setsid setpriv --reuid 65534 --clear-groups bash {file}"));
    holder.wait_until("the connections", || holder.printed().contains("held"));
    let answered = (0..30).filter(|_| get(&network, METRICS, "/metrics", "").0 == 200).count();
    assert_eq!(answered, 30);
    drop(holder);
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

#[test]
fn other_hosts_need_the_token_and_tls() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let file = |name: &str| network.folder.file(name);
    let (certificate, key, token) = (file("web.pem"), file("web.key"), file("token"));
    let make = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=r -addext subjectAltName=IP:10.0.1.1 \
         -keyout {key} -out {certificate}"
    );
    let (made, text) = network.run("r", &make);
    assert!(made, "{text}");
    std::fs::write(&token, "a word that is too open").unwrap();
    let settings = file("brickway.toml");
    std::fs::write(
        &settings,
        format!(
            "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n[metrics]\nlisten = \"10.0.1.1:9779\"\ntoken_file = \"{token}\"\n\
             certificate = \"{certificate}\"\nkey = \"{key}\"\n"
        ),
    )
    .unwrap();
    let (started, text) = network.run("r", &format!("{PROGRAM} run --config {settings} --quiet --for 0.1"));
    assert!(!started && text.contains("lets other users in; expected mode 0600"), "{text}");
    network.run("r", &format!("chmod 600 {token}"));
    let (started, text) = network.run("r", &format!("{PROGRAM} run --config {settings} --quiet --for 0.1"));
    assert!(!started && text.contains("expected one word of at least 16 characters"), "{text}");
    std::fs::write(&token, "fd0e91c3a7b2465d\n").unwrap();
    let router = start(&network, &format!("--config {settings}"));
    warm_up(&network, "a", &["10.0.2.2"]);
    let ask = |header: &str| {
        let request =
            format!("GET /metrics HTTP/1.1\\r\\nHost: r\\r\\n{header}Connection: close\\r\\n\\r\\n");
        let client = format!(
            "openssl s_client -connect 10.0.1.1:9779 -CAfile {certificate} -verify_return_error -ign_eof -quiet"
        );
        network.script("a", &format!("printf '{request}' | timeout 60 {client}")).1
    };
    let text = ask("Authorization: Bearer fd0e91c3a7b2465d\\r\\n");
    assert!(text.contains("200 OK") && text.contains("brickway_build_info"), "{text}");
    for header in ["", "Authorization: Bearer 0123456789abcdeg\\r\\n"] {
        let text = ask(header);
        assert!(text.contains("401 Unauthorized") && !text.contains("brickway_"), "{header}: {text}");
    }
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}
