//! What the tests of several files share: pools, batches, and a network namespace with a veth pair.

use packet::{Batch, Pool, PoolOptions};

/// A pool for tests, with frames of the usual size.
pub(crate) fn pool(frames: usize) -> Pool {
    Pool::new(PoolOptions { frames, ..PoolOptions::default() }).unwrap()
}

/// A batch of packets with this data.
pub(crate) fn batch_of(pool: &mut Pool, frames: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::new();
    for frame in frames {
        let mut packet = pool.allocate().unwrap();
        assert!(packet.set_data(frame));
        batch.push(packet);
    }
    batch
}

/// The data of each packet.
pub(crate) fn contents(batch: &Batch) -> Vec<Vec<u8>> {
    batch.iter().map(|packet| packet.data().to_vec()).collect()
}

/// An Ethernet frame of a private EtherType with a number in it, so that a test knows its own frames.
pub(crate) fn numbered_frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length.max(20)];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&TEST_ETHERTYPE);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    for (index, byte) in frame.iter_mut().enumerate().skip(18) {
        *byte = (index as u32 ^ number) as u8;
    }
    frame
}

/// EtherType for experiments (IEEE 802, clause 9.2.4).
pub(crate) const TEST_ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Whether the test may make network namespaces; says so when not.
pub(crate) fn may_use_namespaces() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: making network namespaces needs root");
    }
    root
}

/// Runs `test` on a thread of its own inside a fresh network namespace, which goes away with the thread.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !may_use_namespaces() {
        return;
    }
    let thread = std::thread::spawn(move || {
        #[allow(unsafe_code, reason = "the network namespace is the thread's own")]
        // SAFETY: a new network namespace changes no memory and no file table of other threads.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
        ip("link set lo up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with these words in the thread's namespace.
pub(crate) fn ip(words: &str) {
    command("ip", words);
}

/// Runs a program with these words in the thread's namespace; its output.
pub(crate) fn command(program: &str, words: &str) -> String {
    // DPDK's plug-ins set variables of the environment when they are loaded: no program may start at that moment, or
    // the kernel reads an array of variables that is no longer there ("Bad address").
    #[cfg(feature = "dpdk")]
    crate::dpdk::start_for_tests();
    let output = std::process::Command::new(program).args(words.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install it"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A veth pair `left`-`right`, up, without IPv6 chatter.
pub(crate) fn veth_pair(left: &str, right: &str) {
    ip(&format!("link add {left} type veth peer name {right}"));
    for name in [left, right] {
        ip(&format!("link set {name} addrgenmode none"));
        ip(&format!("link set {name} up"));
    }
}

/// The path of a file for one test of one run; the file goes with it.
pub(crate) struct TemporaryFile(String);

/// A path for a file that is not there yet.
pub(crate) fn temporary_file(name: &str) -> TemporaryFile {
    let name = format!("brickway-ports-{}-{name}", std::process::id());
    TemporaryFile(std::env::temp_dir().join(name).to_str().unwrap().to_owned())
}

impl std::fmt::Display for TemporaryFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<std::path::Path> for TemporaryFile {
    fn as_ref(&self) -> &std::path::Path {
        self.0.as_ref()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Asks again and again, for at most ten seconds, until the kernel did something that it does in the background.
pub(crate) fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Receives until `count` frames of [`numbered_frame`] came (others are skipped), for at most ten seconds.
pub(crate) fn receive_numbered(rx: &mut dyn crate::RxQueue, pool: &mut Pool, count: usize) -> Vec<Vec<u8>> {
    let (mut batch, mut frames) = (Batch::new(), Vec::new());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while frames.len() < count && std::time::Instant::now() < deadline {
        if rx.receive(pool, &mut batch, 32) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        frames.extend(contents(&batch).into_iter().filter(|frame| frame[12..14] == TEST_ETHERTYPE));
        pool.free(&mut batch);
    }
    frames
}
