//! One suite for both kinds.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::testing::{Cable, Etcd, free_port, key_file, temporary_directory};
use super::*;
use crate::cluster::key::Key;

/// How long to wait for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

fn put(key: &str, value: impl Into<Vec<u8>>) -> Operation {
    Operation::Put { key: key.into(), value: value.into(), session: None }
}

fn next(events: &Receiver<Event>) -> Event {
    events.recv_timeout(PATIENCE).expect("an event comes")
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn key(number: u8) -> Key {
    Key::from_hex(&format!("{number:02x}a7").repeat(16)).unwrap()
}

/// A store of one kind that can be taken away.
trait Kind: Sized {
    fn start() -> Self;
    fn place(&self) -> Place;
    fn kill(&mut self);
    /// Back again; with its data, or without (a store in memory).
    fn restart(&mut self);
    fn open(&self) -> Store {
        Store::open(&self.place(), "/brickway/test/").expect("it runs")
    }
}

impl Kind for Etcd {
    fn start() -> Etcd {
        Etcd::start()
    }
    fn place(&self) -> Place {
        self.place()
    }
    fn kill(&mut self) {
        self.kill();
    }
    fn restart(&mut self) {
        self.restart();
    }
}

/// The process that hosts a store.
struct HostedStore {
    address: SocketAddr,
    key_file: Option<PathBuf>,
    host: Option<Store>,
}

impl HostedStore {
    fn with(key_file: Option<PathBuf>) -> HostedStore {
        let mut store = HostedStore { address: ([127, 0, 0, 1], free_port()).into(), key_file, host: None };
        store.restart();
        store
    }

    fn place_with(&self, key_file: Option<PathBuf>) -> Place {
        Place::Hosted { address: self.address, hosts: false, key_file }
    }
}

impl Kind for HostedStore {
    fn start() -> HostedStore {
        HostedStore::with(Some(key_file(&[key(1)])))
    }
    fn place(&self) -> Place {
        self.place_with(self.key_file.clone())
    }
    fn kill(&mut self) {
        self.host = None;
    }
    fn restart(&mut self) {
        let key_file = self.key_file.clone();
        let place = Place::Hosted { address: self.address, hosts: true, key_file };
        self.host = Some(Store::open(&place, "/brickway/host/").expect("the port is free"));
    }
}

fn keys_and_values<K: Kind>() {
    let kind = K::start();
    let store = kind.open();
    assert_eq!(store.get("a").unwrap(), None);
    let first = store.commit(None, vec![put("a", "1"), put("b/1", [0, 255]), put("b/2", "")]).unwrap();
    let entry = |key: &str, value: &[u8], revision| Entry { key: key.into(), value: value.into(), revision };
    assert_eq!(store.get("a").unwrap(), Some(entry("a", b"1", first)));
    let second = store.commit(None, vec![put("b/2", "2"), Operation::Remove("nobody".into())]).unwrap();
    assert!(second > first);
    assert_eq!(
        store.list("b/").unwrap(),
        (vec![entry("b/1", &[0, 255], first), entry("b/2", b"2", second)], second)
    );
    assert_eq!(store.list("").unwrap().0.len(), 3);
    assert_eq!(store.list("none").unwrap(), (vec![], second));
    // Other prefixes are other stores.
    let other = Store::open(&kind.place(), "/brickway/tesu/").unwrap();
    other.commit(None, vec![put("a", "other")]).unwrap();
    let third = store
        .commit(
            None,
            vec![Operation::RemovePrefix("b/".into()), Operation::Remove("a".into()), put("c", "3")],
        )
        .unwrap();
    assert_eq!(store.list("").unwrap(), (vec![entry("c", b"3", third)], third));
    assert_eq!(other.list("").unwrap().0[0].value, b"other");
}

fn refusals<K: Kind>() {
    let kind = K::start();
    let store = kind.open();
    let many = (0..=MOST_OPERATIONS).map(|number| put(&number.to_string(), "")).collect();
    let error = store.commit(None, many).unwrap_err();
    assert!(error.to_string().contains("at most 128 operations with 1500000 bytes"), "{error}");
    assert!(matches!(
        store.commit(None, vec![put("a", vec![0; MOST_BYTES])]),
        Err(StoreError::TooLarge { .. })
    ));
    let twice = store.commit(None, vec![put("a", "1"), put("a", "2")]);
    assert!(matches!(twice, Err(StoreError::Refused { .. })), "{twice:?}");
    let both = store.commit(None, vec![put("a/1", "1"), Operation::RemovePrefix("a/".into())]);
    assert!(matches!(both, Err(StoreError::Refused { .. })), "{both:?}");
    let orphan = Operation::Put { key: "a".into(), value: vec![], session: Some(SessionId(12345)) };
    assert!(matches!(store.commit(None, vec![orphan]), Err(StoreError::SessionEnded { .. })));
    assert_eq!(store.list("").unwrap().0, vec![]);
    // What just fits.
    let bytes = MOST_BYTES / MOST_OPERATIONS - "/brickway/test/000".len();
    let most = (0..MOST_OPERATIONS).map(|number| put(&format!("{number:03}"), vec![1; bytes])).collect();
    let revision = store.commit(None, most).unwrap();
    assert_eq!(store.list("").unwrap().0.len(), MOST_OPERATIONS);
    assert!(matches!(store.compact(revision + 1), Err(StoreError::Refused { .. })));
}

fn large_listings_and_histories<K: Kind>() {
    let kind = K::start();
    let store = kind.open().with_limit(PATIENCE);
    let value = |number: u32| {
        Vec::from_iter((0..500_000 / 4).flat_map(|word: u32| (word * 31 + number).to_le_bytes()))
    };
    // Small ones first: pages grow with them, and must shrink again.
    for chunk in 0..10 {
        store
            .commit(None, (0..100).map(|number| put(&format!("a{chunk}{number:02}"), "small")).collect())
            .unwrap();
    }
    let (_, before) = store.list("").unwrap();
    (0..40).for_each(|number| {
        store.commit(None, vec![put(&format!("b{number:02}"), value(number))]).unwrap();
    });
    let (entries, revision) = store.list("").unwrap();
    assert_eq!(entries.len(), 1040);
    for (number, entry) in (0..).zip(&entries[1000..]) {
        assert!(entry.key == format!("b{number:02}") && entry.value == value(number), "{}", entry.key);
    }
    // The same through a watch: much more than a message holds.
    let (sender, events) = channel();
    let _watch = store.watch("", before, sender);
    for number in 0..40 {
        let Event::Put(entry) = next(&events) else { panic!("nothing else happened") };
        assert!(entry.key == format!("b{number:02}") && entry.value == value(number), "{}", entry.key);
    }
    assert_eq!(revision, before + 40);
    assert!(events.try_recv().is_err());
}

fn watch_sees_everything_once_and_in_order<K: Kind>() {
    let kind = K::start();
    let store = kind.open();
    store.commit(None, vec![put("before", "")]).unwrap();
    store.commit(None, vec![put("in/a", "1"), put("out/a", "1")]).unwrap();
    let (listing, revision) = store.list("in/").unwrap();
    let mut mirror = BTreeMap::from_iter(listing.into_iter().map(|entry| (entry.key, entry.value)));
    let past = store.commit(None, vec![put("in/b", "1"), Operation::Remove("in/a".into())]).unwrap();
    let (sender, events) = channel();
    let watch = store.watch("in/", revision, sender);
    let first = next(&events);
    assert_eq!(first, Event::Put(Entry { key: "in/b".into(), value: "1".into(), revision: past }));
    let second = next(&events);
    assert_eq!(second, Event::Removed { key: "in/a".into(), revision: past });
    let other = kind.open();
    let mut last = past;
    for number in 0..300 {
        let key = format!("in/{}", number % 7);
        last = match number % 5 {
            4 => other.commit(None, vec![Operation::Remove(key), put("in/z", number.to_string())]).unwrap(),
            _ => other.commit(None, vec![put(&key, number.to_string()), put("out/a", "")]).unwrap(),
        };
    }
    let mut seen = past;
    for event in [first, second].into_iter().chain(std::iter::from_fn(|| {
        (seen < last).then(|| {
            let event = next(&events);
            let revision = event.revision().unwrap();
            assert!(revision >= seen, "in order");
            seen = revision;
            event
        })
    })) {
        match event {
            Event::Put(entry) => drop(mirror.insert(entry.key, entry.value)),
            Event::Removed { key, .. } => {
                assert!(mirror.remove(&key).is_some(), "only what was there goes, and once")
            }
            Event::Lost(reason) => panic!("{reason}"),
        }
    }
    // The last revision's other events.
    while let Ok(event) = events.recv_timeout(Duration::from_millis(300)) {
        let Event::Put(entry) = event else { panic!("{event:?}") };
        mirror.insert(entry.key, entry.value);
    }
    let (listing, _) = store.list("in/").unwrap();
    assert_eq!(mirror, BTreeMap::from_iter(listing.into_iter().map(|entry| (entry.key, entry.value))));
    drop(watch);
    store.commit(None, vec![put("in/late", "")]).unwrap();
    // The sender goes with the watch.
    wait_until("it ends", || matches!(events.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)));
}

fn compacted_history_is_lost<K: Kind>() {
    let kind = K::start();
    let store = kind.open();
    let first = store.commit(None, vec![put("a", "1")]).unwrap();
    let second = store.commit(None, vec![Operation::Remove("a".into())]).unwrap();
    let third = store.commit(None, vec![put("b", "1")]).unwrap();
    store.compact(second).unwrap();
    store.compact(second).unwrap();
    let watched = |after| {
        let (sender, events) = channel();
        let _watch = store.watch("", after, sender);
        next(&events)
    };
    assert!(matches!(watched(first), Event::Lost(reason) if reason.contains("compacted")));
    assert!(matches!(watched(second), Event::Put(entry) if entry.revision == third));
    // From a store whose data were others.
    assert!(matches!(watched(third + 1000), Event::Lost(_)));
}

fn sessions_end_with_their_keys<K: Kind>() {
    let kind = K::start();
    let (store, other) = (kind.open(), kind.open());
    let (sender, events) = channel();
    let (_, revision) = store.list("").unwrap();
    let _watch = store.watch("", revision, sender);
    let session = other.session(Duration::from_secs(2)).unwrap();
    assert!(session.is_alive());
    let member = |value: &str| Operation::Put {
        key: "members/1".into(),
        value: value.into(),
        session: Some(session.id()),
    };
    other.commit(None, vec![member("up"), put("stays", "")]).unwrap();
    assert!(matches!(next(&events), Event::Put(_)));
    assert!(matches!(next(&events), Event::Put(_)));
    // It is renewed: twice its time goes by.
    std::thread::sleep(session.ttl() * 2);
    assert!(session.is_alive());
    assert!(store.get("members/1").unwrap().is_some() && events.try_recv().is_err());
    drop(session);
    assert!(matches!(next(&events), Event::Removed { key, .. } if key == "members/1"));
    assert_eq!(store.list("").unwrap().0.len(), 1);
}

/// A session that nobody renews: its process hangs.
fn sessions_run_out<K: Kind>() {
    let kind = K::start();
    let store = kind.open();
    let (_, revision) = store.list("").unwrap();
    let (sender, events) = channel();
    let _watch = store.watch("", revision, sender);
    let session = store.session(Duration::from_secs(2)).unwrap();
    session.stop_renewing();
    let guard = store.take(&session, "leader", "me").unwrap().unwrap();
    assert!(matches!(next(&events), Event::Put(_)));
    assert!(matches!(next(&events), Event::Removed { .. }));
    assert!(!session.is_alive(), "it knows before the store does");
    let error = store.commit(Some(&guard), vec![put("a", "late")]).unwrap_err();
    assert!(matches!(error, StoreError::Fenced { .. }), "{error}");
    assert!(matches!(store.take(&session, "leader", "me"), Err(StoreError::SessionEnded { .. })));
}

fn one_taker_wins<K: Kind>() {
    let kind = K::start();
    let (store, other) = (kind.open(), kind.open());
    let first = store.session(Duration::from_secs(5)).unwrap();
    let second = other.session(Duration::from_secs(5)).unwrap();
    let guard = store.take(&first, "leader", "first").unwrap().expect("nobody has it");
    assert_eq!(other.take(&second, "leader", "second").unwrap(), None);
    assert_eq!(store.take(&first, "leader", "again").unwrap().as_ref(), Some(&guard));
    assert_eq!(store.get("leader").unwrap().unwrap().value, b"first");
    store.commit(Some(&guard), vec![put("table", "1")]).unwrap();
    let (sender, events) = channel();
    let _watch = other.watch("leader", guard.revision(), sender);
    drop(first);
    assert!(matches!(next(&events), Event::Removed { .. }));
    let next_guard = other.take(&second, "leader", "second").unwrap().expect("it is free");
    assert!(next_guard.revision() > guard.revision());
    let error = store.commit(Some(&guard), vec![put("table", "old")]).unwrap_err();
    assert!(matches!(error, StoreError::Fenced { .. }), "{error}");
    other.commit(Some(&next_guard), vec![put("table", "2")]).unwrap();
    assert_eq!(store.get("table").unwrap().unwrap().value, b"2");
}

fn absence_is_waited_out<K: Kind>() {
    let mut kind = K::start();
    let store = kind.open().with_limit(Duration::from_millis(500));
    store.commit(None, vec![put("a", "1")]).unwrap();
    kind.kill();
    let began = Instant::now();
    for error in [
        store.get("a").unwrap_err(),
        store.list("").unwrap_err(),
        store.commit(None, vec![put("a", "2")]).unwrap_err(),
        store.session(Duration::from_secs(2)).map(drop).unwrap_err(),
        store.compact(1).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{text}");
        assert!(text.contains("127.0.0.1:") && text.contains("running"), "{text}");
    }
    assert!(began.elapsed() < PATIENCE, "each has its limit");
    assert!(matches!(Store::open(&kind.place(), ""), Err(StoreError::Unavailable { .. })));
    kind.restart();
    wait_until("it works again", || store.commit(None, vec![put("a", "3")]).is_ok());
    assert_eq!(store.get("a").unwrap().unwrap().value, b"3");
}

macro_rules! conformance {
    ($module:ident, $kind:ty: $($test:ident),* $(,)?) => {
        mod $module {
            $(#[test] fn $test() { super::$test::<$kind>(); })*
        }
    };
}

conformance!(hosted, super::HostedStore:
    keys_and_values, refusals, large_listings_and_histories, watch_sees_everything_once_and_in_order,
    compacted_history_is_lost, sessions_end_with_their_keys, sessions_run_out, one_taker_wins, absence_is_waited_out,
    watches_and_sessions_outlive_connections,
);

conformance!(etcd, super::Etcd:
    keys_and_values, refusals, large_listings_and_histories, watch_sees_everything_once_and_in_order,
    compacted_history_is_lost, sessions_end_with_their_keys, sessions_run_out, one_taker_wins, absence_is_waited_out,
    watches_and_sessions_outlive_connections,
);

/// etcd is killed and comes back with its data: watches go on, sessions live.
#[test]
fn watch_and_session_survive_a_restart_of_etcd() {
    let mut etcd = Etcd::start();
    let store = etcd.open("/w/");
    let session = store.session(Duration::from_secs(60)).unwrap();
    let guard = store.take(&session, "leader", "").unwrap().unwrap();
    let (sender, events) = channel();
    let _watch = store.watch("", guard.revision(), sender);
    for round in 0..3 {
        let revision = store.commit(Some(&guard), vec![put("a", "1"), put("b", round.to_string())]).unwrap();
        assert_eq!(next(&events).revision(), Some(revision));
        assert_eq!(next(&events).revision(), Some(revision));
        etcd.kill();
        etcd.restart();
        let mut revision = None;
        wait_until("it works again", || {
            revision = store.commit(Some(&guard), vec![put("c", "1")]).ok();
            revision.is_some()
        });
        assert_eq!(next(&events).revision(), revision, "neither missed nor seen twice");
    }
    assert!(session.is_alive() && events.try_recv().is_err());
}

#[test]
fn errors_say_where() {
    let place = Place::Etcd(EtcdPlace {
        endpoints: vec![format!("http://127.0.0.1:{}", free_port())],
        ..EtcdPlace::default()
    });
    let text = Store::open(&place, "").map(drop).unwrap_err().to_string();
    assert!(text.contains("cannot open the store: etcd at http://127.0.0.1:"), "{text}");
    assert!(text.contains("Connection refused") && text.contains("systemctl status etcd"), "{text}");
    let tls = TlsFiles { ca: "/nowhere/ca.pem".into(), identity: None };
    let place = Place::Etcd(EtcdPlace { endpoints: vec!["127.0.0.1:1".into()], user: None, tls: Some(tls) });
    let text = Store::open(&place, "").map(drop).unwrap_err().to_string();
    assert!(text.contains("cannot read /nowhere/ca.pem"), "{text}");
}

#[test]
fn stores_are_handed_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Store>();
    check::<Session>();
    check::<Watch>();
}

fn watches_and_sessions_outlive_connections<K: Kind>() {
    let kind = K::start();
    let (place, cable) = Cable::to(&kind.place());
    let (near, far) = (kind.open(), Store::open(&place, "/brickway/test/").unwrap());
    let session = far.session(Duration::from_secs(20)).unwrap();
    let guard = far.take(&session, "leader", "").unwrap().unwrap();
    let (sender, events) = channel();
    let _watch = far.watch("", guard.revision(), sender);
    let mut revision = guard.revision();
    for number in 0..200 {
        near.commit(None, vec![put("a", number.to_string()), put("b", "")]).unwrap();
        if number % 50 == 49 {
            cable.cut();
        }
    }
    for number in 0..400 {
        let event = next(&events);
        assert!(matches!(event, Event::Put(_)), "{event:?}");
        revision += i64::from(number % 2 == 0);
        assert_eq!(event.revision(), Some(revision), "neither missed nor seen twice");
    }
    wait_until("it works again", || far.get("a").is_ok());
    assert!(session.is_alive());
    far.commit(Some(&guard), vec![put("c", "")]).unwrap();
}

/// What a host held is gone with it, and everybody hears so.
#[test]
fn a_host_that_restarts_has_forgotten_everything() {
    let mut kind = HostedStore::start();
    let store = kind.open();
    let session = store.session(Duration::from_secs(60)).unwrap();
    let guard = store.take(&session, "leader", "").unwrap().unwrap();
    let (sender, events) = channel();
    let _watch = store.watch("", guard.revision(), sender);
    kind.kill();
    kind.restart();
    assert!(matches!(next(&events), Event::Lost(_)));
    wait_until("it works again", || store.list("").is_ok_and(|(entries, _)| entries.is_empty()));
    let error = store.commit(Some(&guard), vec![put("a", "")]).unwrap_err();
    assert!(matches!(error, StoreError::Fenced { .. }), "{error}");
    wait_until("the session ends", || {
        matches!(store.take(&session, "leader", ""), Err(StoreError::SessionEnded { .. }))
    });
}

/// Each stranger is cut off, and nobody else.
#[test]
fn strangers_are_cut_off() {
    for keys in [None, Some(key_file(&[key(1)]))] {
        let has_key = u8::from(keys.is_some());
        let kind = HostedStore::with(keys);
        let store = kind.open();
        for number in 0..200_u32 {
            let mut stream = TcpStream::connect(kind.address).unwrap();
            let mut bytes = Vec::from_iter((0..64).map(|place| (number * 167 + place * place * 59) as u8));
            let length: u32 = match number % 4 {
                0 => u32::MAX,
                1 => 60,
                2 => 5 << 20,
                // A message that is cut short.
                _ => 100,
            };
            if number % 8 != 0 {
                bytes.splice(..0, length.to_be_bytes());
                bytes.splice(..0, [0; 32]);
                bytes.splice(..0, [has_key]);
                bytes.splice(..0, *b"brickway store 2");
            }
            let _ = stream.write_all(&bytes);
            if length == 100 {
                let _ = stream.shutdown(Shutdown::Write);
            }
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.len() < 200, "a greeting, and what little it may have understood");
            assert!(has_key == 0 || answer.len() <= 49, "a greeting without a proof");
        }
        store.commit(None, vec![put("a", "1")]).unwrap();
        assert_eq!(store.list("").unwrap().0.len(), 1);
    }
}

/// A hosted store with a key asks everybody who he is.
#[test]
fn nobody_without_the_key_reads_or_writes_a_hosted_store() {
    let kind = HostedStore::start();
    kind.open().commit(None, vec![put("a", "1")]).unwrap();
    let refusal = |keys: Option<PathBuf>| {
        Store::open(&kind.place_with(keys), "/brickway/test/").map(drop).unwrap_err().to_string()
    };
    let error = refusal(None);
    assert!(error.contains("the other side wants a key"), "{error}");
    let error = refusal(Some(key_file(&[key(2)])));
    assert!(error.contains("does not accept this node's key"), "{error}");
    let error = refusal(Some(PathBuf::from("/nowhere/key")));
    assert!(error.contains("run 'brickway cluster key'"), "{error}");
    // A host without a key is not where a node with one leaves what it knows.
    let open = HostedStore::with(None);
    let error = Store::open(&open.place_with(Some(key_file(&[key(1)]))), "").map(drop).unwrap_err();
    assert!(error.to_string().contains("the other side has no key"), "{error}");
}

/// Old and new key side by side in both files, in any order; then the new one alone.
#[test]
fn the_key_of_a_hosted_store_changes_while_it_runs() {
    let kind = HostedStore::start();
    let store = kind.open();
    let change = |keys: &[Key]| {
        std::fs::rename(key_file(keys), kind.key_file.as_ref().unwrap()).unwrap();
    };
    let opens = |keys: &[Key]| Store::open(&kind.place_with(Some(key_file(keys))), "/brickway/test/").is_ok();
    change(&[key(1), key(2)]);
    assert!(opens(&[key(1)]) && opens(&[key(1), key(2)]) && opens(&[key(2), key(1)]));
    change(&[key(2), key(1)]);
    assert!(opens(&[key(1), key(2)]) && opens(&[key(2), key(1)]) && opens(&[key(2)]));
    change(&[key(2)]);
    assert!(opens(&[key(2)]) && !opens(&[key(1)]));
    // A file that others can read is not taken: the keys of before stay.
    let exposed = key_file(&[key(3)]);
    std::fs::set_permissions(&exposed, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::rename(exposed, kind.key_file.as_ref().unwrap()).unwrap();
    assert!(opens(&[key(2)]) && !opens(&[key(3)]));
    store.commit(None, vec![put("a", "1")]).unwrap();
}

/// What a node sent once, sent again by somebody who heard it, does nothing.
#[test]
fn a_recorded_connection_is_worth_nothing() {
    let kind = HostedStore::start();
    let store = kind.open();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let host = kind.address;
    let recording = std::thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut far = TcpStream::connect(host).unwrap();
        let (mut back, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut to_near));
        let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = near.read(&mut buffer) {
            heard.extend_from_slice(&buffer[..count]);
            far.write_all(&buffer[..count]).unwrap();
        }
        let _ = far.shutdown(Shutdown::Both);
        heard
    });
    let place = Place::Hosted { address, hosts: false, key_file: kind.key_file.clone() };
    Store::open(&place, "/brickway/test/").unwrap().commit(None, vec![put("a", "recorded")]).unwrap();
    let heard = recording.join().unwrap();
    assert!(heard.windows(8).any(|bytes| bytes == b"recorded"));
    store.commit(None, vec![put("a", "newer")]).unwrap();
    let mut stream = TcpStream::connect(kind.address).unwrap();
    let _ = stream.write_all(&heard);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() <= 49, "a greeting without a proof");
    assert_eq!(store.get("a").unwrap().unwrap().value, b"newer");
}

#[test]
fn strangers_who_connect_and_wait_keep_nobody_out() {
    let kind = HostedStore::start();
    let waiting = Vec::from_iter((0..300).map(|_| TcpStream::connect(kind.address).unwrap()));
    kind.open().commit(None, vec![put("a", "1")]).unwrap();
    let mut oldest = &waiting[0];
    oldest.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    let _ = oldest.read_to_end(&mut answer);
    assert!(answer.len() <= 49, "the oldest is cut off");
}

/// TLS with certificates of our own, a user with a password whose role is one prefix.
#[test]
fn etcd_with_tls_and_a_user() {
    let directory = temporary_directory();
    let run = |program: &str, arguments: &str| {
        let output =
            Command::new(program).args(arguments.split(' ')).current_dir(&directory).output().unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    run("openssl", &format!("req -x509 {key} -subj /CN=authority -days 2 -keyout ca.key -out ca.pem"));
    run("openssl", &format!("req {key} -subj /CN=etcd -keyout server.key -out request.pem"));
    std::fs::write(directory.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    run(
        "openssl",
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
    let mut etcd = Etcd::start_with_tls(directory.clone());
    let control = |arguments: &str| {
        run("etcdctl", &format!("--endpoints {} --cacert ca.pem {arguments}", etcd.endpoint()));
    };
    control("user add root:secret");
    control("user grant-role root root");
    control("role add lab");
    control("role grant-permission lab --prefix=true readwrite /lab/");
    control("user add router:word");
    control("user grant-role router lab");
    control("auth enable");
    let place = |password: &str| {
        let tls = TlsFiles { ca: directory.join("ca.pem"), identity: None };
        let user = Some(("router".to_owned(), password.to_owned()));
        Place::Etcd(EtcdPlace { endpoints: vec![etcd.endpoint()], user, tls: Some(tls) })
    };
    let error = Store::open(&place("wrong"), "/lab/").map(drop).unwrap_err();
    assert!(error.to_string().contains("authentication failed"), "{error}");
    let error = Store::open(&place("word"), "/office/").map(drop).unwrap_err();
    assert!(error.to_string().contains("permission denied"), "{error}");
    let untrusted = Store::open(&etcd.place(), "/lab/").map(drop).unwrap_err();
    assert!(matches!(untrusted, StoreError::Unavailable { .. }), "{untrusted}");
    let store = Store::open(&place("word"), "/lab/").unwrap();
    let session = store.session(Duration::from_secs(60)).unwrap();
    let guard = store.take(&session, "leader", "").unwrap().unwrap();
    let (sender, events) = channel();
    let _watch = store.watch("", guard.revision(), sender);
    // etcd forgets its tokens.
    etcd.kill();
    etcd.restart();
    let mut revision = None;
    wait_until("it works again", || {
        revision = store.commit(Some(&guard), vec![put("a", "1")]).ok();
        revision.is_some()
    });
    assert_eq!(next(&events).revision(), revision);
}

proptest::proptest! {
    /// A request with any numbers in it, or any bytes.
    #[test]
    fn a_hosted_store_hears_any_bytes(
        kind in 0_u8..12,
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
    ) {
        testing::hosted_store_hears(&bytes);
        testing::hosted_store_hears(&[&[1, kind], &bytes[..]].concat());
    }
}

#[test]
fn a_message_takes_memory_for_what_came_and_not_for_what_was_announced() {
    // A commit of 2^28 operations, and a key of as many bytes.
    for announced in [&[1, 3, 0, 0xff, 0xff, 0xff, 0x7f][..], &[1, 1, 0xff, 0xff, 0xff, 0x7f]] {
        assert_eq!(testing::hosted_store_hears(announced), 0);
    }
    assert_eq!(testing::hosted_store_hears(&[1, 1, 1, b'a']), 1);
}
