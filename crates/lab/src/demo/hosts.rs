//! Hosts in network namespaces, and what a person types on them.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use router::table::thousands;
use testbed::Namespace;

/// Whether the user wants to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Set by Ctrl-C, and when the program gets a signal to end.
    pub(crate) fn on_ctrl_c() -> Result<Self> {
        let stop = Self(Arc::default());
        let flag = stop.clone();
        router::interrupt::on_interrupt(move || flag.set()).context("cannot catch Ctrl-C")?;
        Ok(stop)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// An error if the user wants to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() { Err(anyhow::anyhow!("interrupted")) } else { Ok(()) }
    }
}

/// Runs a program to its end, at most `limit`, and returns what it printed and whether it succeeded.
pub(crate) fn run(
    command: &mut Command,
    limit: Duration,
    stop: Option<&Stop>,
    idle: &mut dyn FnMut(),
) -> Result<(bool, String)> {
    let name = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    // Read while it runs: a program that prints much would wait for ever.
    let printed = [child.stdout.take().map(reader), child.stderr.take().map(reader)];
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let texts = printed.into_iter().flatten().map(|reader| reader.join().unwrap_or_default());
            return Ok((status.success(), texts.collect()));
        }
        let interrupted = stop.is_some_and(Stop::is_set);
        if interrupted || begin.elapsed() > limit {
            // It may have ended this instant.
            let _ = child.kill();
            child.wait()?;
            bail!(
                "{} {name}",
                if interrupted { "interrupted during" } else { "no end within the time limit:" }
            );
        }
        idle();
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Reads all that a program prints.
fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is what there is.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// How long a host may take to answer another one's ping.
const LONGEST_SILENCE: Duration = Duration::from_secs(20);

/// How often something is tried that falls short of its aim in part. A machine that does too much else at a time
/// misses it once; a router that drops packets misses it each time.
pub(crate) const TRIES: u32 = 3;

/// The answers to some pings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ping {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) average_ms: f64,
    /// How often they were tried, of which this is the last time.
    pub(crate) tries: u32,
}

impl Ping {
    /// Whether each was answered.
    pub(crate) fn is_whole(&self) -> bool {
        self.sent > 0 && self.answered == self.sent
    }

    /// These and others.
    pub(crate) fn and(self, other: Ping) -> Ping {
        Ping {
            sent: self.sent + other.sent,
            answered: self.answered + other.answered,
            average_ms: self.average_ms.max(other.average_ms),
            tries: self.tries.max(other.tries),
        }
    }
}

/// Pings, all of which are expected to be answered; `what` stands before.
pub(crate) fn all_answered(what: &str, ping: Ping) -> Result<String, String> {
    let text =
        format!("{what}{} of {} answered, all expected{}", ping.answered, ping.sent, again(ping.tries));
    if ping.is_whole() { Ok(text) } else { Err(text) }
}

/// What a step says of being tried again.
pub(crate) fn again(tries: u32) -> String {
    if tries > 1 { format!("; tried {tries} times") } else { String::new() }
}

/// What iperf3 measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tcp {
    pub(crate) bits_per_second: f64,
    pub(crate) retransmissions: u64,
}

impl Tcp {
    /// For people.
    pub(crate) fn text(&self) -> String {
        format!(
            "{:.2} Gbit/s, {} retransmissions",
            self.bits_per_second / 1e9,
            thousands(self.retransmissions)
        )
    }
}

/// A host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) namespace: Namespace,
}

impl Host {
    /// Pings `count` times, 20 ms apart.
    pub(crate) fn ping(&self, target: &str, count: u32, stop: &Stop) -> Result<Ping> {
        self.ping_with(&["-c", &count.to_string(), "-W", "2", target], stop)
    }

    /// Pings `count` times, until all are answered: again as long as none is, for up to 20 s (a machine that does too much else at a
    /// time answers late), and some times where some are.
    pub(crate) fn reach(&self, target: &str, count: u32, stop: &Stop) -> Result<Ping> {
        Self::until_whole(|| self.ping(target, count, stop))
    }

    /// The same with `size` bytes and fragmentation allowed.
    pub(crate) fn reach_fragmented(&self, target: &str, size: u32, stop: &Stop) -> Result<Ping> {
        let size = size.to_string();
        let arguments = ["-c", "3", "-W", "2", "-M", "dont", "-s", &size, target];
        Self::until_whole(|| self.ping_with(&arguments, stop))
    }

    fn until_whole(mut pings: impl FnMut() -> Result<Ping>) -> Result<Ping> {
        let end = Instant::now() + LONGEST_SILENCE;
        let (mut tries, mut in_part) = (0, 0);
        loop {
            tries += 1;
            let ping = Ping { tries, ..pings()? };
            in_part += u32::from(ping.answered > 0);
            if ping.is_whole() || in_part == TRIES || Instant::now() >= end {
                return Ok(ping);
            }
        }
    }

    fn ping_with(&self, arguments: &[&str], stop: &Stop) -> Result<Ping> {
        let mut command = self.namespace.command("ping");
        let (_, text) = run(
            command.args(["-n", "-i", "0.02"]).args(arguments),
            Duration::from_secs(30),
            Some(stop),
            &mut || {},
        )?;
        Ok(parse_ping(&text))
    }

    /// Sends one ping of `size` bytes with DF set; the MTU that an ICMP error reports.
    pub(crate) fn too_big(&self, target: &str, size: u32, stop: &Stop) -> Result<Option<u32>> {
        let size = size.to_string();
        let mut command = self.namespace.command("ping");
        command.args(["-n", "-c", "1", "-W", "1", "-M", "do", "-s", &size, target]);
        let (_, text) = run(&mut command, Duration::from_secs(30), Some(stop), &mut || {})?;
        Ok(parse_mtu(&text))
    }

    /// The addresses of the hops to `target`, asked for some times until they are `expected`.
    pub(crate) fn traceroute(&self, target: &str, expected: &[&str], stop: &Stop) -> Result<Vec<String>> {
        let mut hops = Vec::new();
        for _ in 0..TRIES {
            let mut command = self.namespace.command("traceroute");
            command.args(["-n", "-q", "1", "-w", "2", "-m", "5", target]);
            let (_, text) = run(&mut command, Duration::from_secs(60), Some(stop), &mut || {})?;
            hops = parse_traceroute(&text);
            if hops == expected {
                break;
            }
        }
        Ok(hops)
    }

    /// iperf3 to `server`, at `target`, for `seconds`, with more `options`.
    pub(crate) fn iperf(
        &self,
        (server, target): (&Host, &str),
        seconds: u32,
        options: &[&str],
        stop: &Stop,
        idle: &mut dyn FnMut(),
    ) -> Result<Result<Tcp, String>> {
        let mut server = server.namespace.command("iperf3");
        server.args(["-s", "-1"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = server.spawn().context("cannot start the iperf3 server")?;
        // The server needs a moment to listen; a client that comes too early would be refused.
        std::thread::sleep(Duration::from_millis(300));
        let mut client = self.namespace.command("iperf3");
        client.args(["-J", "-c", target, "-t", &seconds.to_string()]).args(options);
        let result = run(&mut client, Duration::from_secs(u64::from(seconds) + 20), Some(stop), idle);
        // With -1 the server has ended; after a failure it has not.
        let _ = server.kill();
        let _ = server.wait();
        let (_, text) = result?;
        Ok(parse_iperf(&text))
    }
}

fn parse_ping(text: &str) -> Ping {
    let mut ping = Ping::default();
    for line in text.lines() {
        if line.contains("packets transmitted") {
            let numbers: Vec<u64> =
                line.split([' ', ',']).filter_map(|word| word.parse().ok()).take(2).collect();
            if let [sent, answered] = numbers[..] {
                (ping.sent, ping.answered) = (sent, answered);
            }
        } else if let Some(times) = line.strip_prefix("rtt min/avg/max/mdev = ") {
            ping.average_ms = times.split('/').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.0);
        }
    }
    ping
}

fn parse_mtu(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("mtu = ").or_else(|| text.split_once("mtu="))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn parse_traceroute(text: &str) -> Vec<String> {
    let hop = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.parse::<u32>().ok()?;
        Some(words.next()?.to_owned())
    };
    text.lines().skip(1).filter_map(hop).collect()
}

fn parse_iperf(text: &str) -> Result<Tcp, String> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|_| format!("iperf3 printed no result: {}", text.trim()))?;
    if let Some(error) = value["error"].as_str() {
        return Err(format!("iperf3: {error}"));
    }
    let rate = value["end"]["sum_received"]["bits_per_second"].as_f64();
    let bits_per_second = rate.ok_or("iperf3 printed no rate")?;
    let retransmissions = value["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0);
    Ok(Tcp { bits_per_second, retransmissions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ping_prints() {
        let text = "PING 10.0.1.2 (10.0.1.2) 56(84) bytes of data.\n64 bytes from 10.0.1.2\n\n\
            --- 10.0.1.2 ping statistics ---\n5 packets transmitted, 4 received, 20% packet loss, time 80ms\n\
            rtt min/avg/max/mdev = 0.080/0.125/0.200/0.040 ms\n";
        assert_eq!(parse_ping(text), Ping { sent: 5, answered: 4, average_ms: 0.125, tries: 0 });
        assert_eq!(parse_ping("ping: connect: Network is unreachable"), Ping::default());
        let error = "From 10.0.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1400)";
        assert_eq!(parse_mtu(error), Some(1400));
        assert_eq!(parse_mtu("ping: local error: message too long, mtu=1500"), Some(1500));
        assert_eq!(parse_mtu("1 packets transmitted"), None);
    }

    #[test]
    fn what_traceroute_prints() {
        let text = "traceroute to 10.0.3.2 (10.0.3.2), 5 hops max, 60 byte packets\n 1  10.0.0.1  0.080 ms\n \
            2  10.0.3.2  0.100 ms\n";
        assert_eq!(parse_traceroute(text), ["10.0.0.1", "10.0.3.2"]);
    }

    #[test]
    fn what_iperf_prints() {
        assert!(parse_iperf("{\"error\":\"unable to connect\"}").unwrap_err().contains("unable"));
        let text =
            "{\"end\":{\"sum_sent\":{\"retransmits\":3},\"sum_received\":{\"bits_per_second\":1.5e9}}}";
        let tcp = parse_iperf(text).unwrap();
        assert_eq!((tcp.bits_per_second, tcp.retransmissions), (1.5e9, 3));
        assert!(parse_iperf("garbage").is_err());
    }
}
