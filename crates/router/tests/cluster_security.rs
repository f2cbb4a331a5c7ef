//! What strangers and Linux can do to a cluster that runs: those who write its store, and a kernel that forwards too.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::cluster::{Cluster, Plan, StorePlan, host_addresses};
use netns::router::PROGRAM;
use netns::{eventually, is_root};

/// A cluster of two nodes.
fn two(plan: Plan) -> Cluster {
    Cluster::new(Plan { topology: "mesh(2)", ..plan })
}

#[test]
fn a_hook_that_a_stranger_writes_into_the_store_is_never_run_and_the_nodes_own_one_is() {
    if !is_root() {
        return;
    }
    let mut cluster = two(Plan::default());
    let file = cluster.file();
    let folder = std::path::Path::new(&file).parent().unwrap();
    let ran = |name: &str| folder.join(name).exists();
    // The store's record before the first node starts: all of a file, with the stranger's options.
    let own = std::fs::read_to_string(&file).unwrap();
    let evil = format!("{own}[leader]\nstart = \"touch {}\"\n", folder.join("strange").display());
    std::fs::write(folder.join("evil"), evil.replace("\"eth1\"", "\"lo\"")).unwrap();
    let put = format!(
        "etcdctl --endpoints 192.168.9.100:2379 put /brickway/test/config <{}",
        folder.join("evil").display()
    );
    let (done, text) = cluster.network.script("mgmt", &format!("export ETCDCTL_API=3; {put}"));
    assert!(done, "{text}");
    std::fs::write(&file, format!("{own}[leader]\nstart = \"touch {}\"\n", folder.join("own").display()))
        .unwrap();
    cluster.start("a");
    assert_eq!(cluster.next_leader(""), "a");
    assert!(eventually(|| ran("own")), "{}", cluster.said("a"));
    assert!(!ran("strange"));
    let said = cluster.said("a");
    assert_eq!(said.matches("options of the store's record are ignored: leader.start").count(), 1, "{said}");
    assert!(said.contains("insecure = true: store: etcd at http://192.168.9.100:2379 without TLS"), "{said}");
    let (_, shown) = cluster.network.run("mgmt", &format!("{PROGRAM} cluster show {file}"));
    assert!(
        shown.contains("from each node's own file: store, security, metrics, web, leader.start"),
        "{shown}"
    );
    assert!(shown.contains("options of the store's record are ignored"), "{shown}");
}

#[test]
fn a_server_with_another_key_does_not_become_a_node_of_a_hosted_cluster() {
    if !is_root() {
        return;
    }
    let mut cluster = two(Plan { store: StorePlan::Hosted, ..Plan::default() });
    let (file, key) = (cluster.file(), cluster.key_file());
    cluster.start("a");
    assert_eq!(cluster.next_leader(""), "a");
    let script = format!(
        "sed s/cluster.key/other.key/ {file} >{file}.other; umask 077; {PROGRAM} cluster key >{}",
        cluster.network.folder.file("other.key")
    );
    assert!(cluster.network.script("mgmt", &script).0);
    let (done, text) = cluster.network.run("b", &format!("{PROGRAM} cluster show {file}.other"));
    assert!(!done && text.contains("does not accept this node's key"), "{text}");
    let (done, text) =
        cluster.network.script("b", &format!("chmod 0644 {key}; {PROGRAM} cluster show {file}"));
    assert!(!done && text.contains("mode 0644") && text.contains("chmod 0600"), "{text}");
    let open = format!("sed -e /key_file/d {file} >{file}.open; {PROGRAM} cluster run {file}.open b");
    let (done, text) = cluster.network.script("b", &open);
    assert!(!done && text.contains("or [security] insecure = true"), "{text}");
}

#[test]
fn linux_forwards_no_packet_of_a_port_beside_the_leader_on_af_packet() {
    if !is_root() {
        return;
    }
    let mut cluster = two(Plan { driver: "af_packet", ..Plan::default() });
    let names = cluster.names.clone();
    for name in &names {
        cluster.network.set(name, "net.ipv4.ip_forward=1");
        cluster.network.set(name, "net.ipv6.conf.all.forwarding=1");
    }
    cluster.start_all(&names);
    cluster.next_leader("");
    cluster.all_reach_all(&[1, 2]);
    for (from, to) in [(1, 2), (2, 1)] {
        for address in host_addresses(to) {
            let (done, text) =
                cluster.network.run(&format!("h{from}"), &format!("ping -n -c 20 -i 0.02 {address}"));
            assert!(done && !text.contains("DUP"), "h{from} -> {address}:\n{text}");
        }
    }
}

#[test]
fn a_key_changes_on_one_node_after_the_other_and_no_link_goes_down() {
    if !is_root() {
        return;
    }
    let mut cluster = two(Plan::default());
    let names = cluster.names.clone();
    let folder = cluster.network.folder.path().to_owned();
    let key_of = |name: &str| folder.join(format!("{name}.key"));
    let old = std::fs::read_to_string(cluster.key_file()).unwrap();
    let (made, new) = cluster.network.run("mgmt", &format!("{PROGRAM} cluster key"));
    assert!(made, "{new}");
    let (old, new) = (old.as_str(), new.as_str());
    let write = |cluster: &Cluster, name: &str, lines: &[&str]| {
        let (draft, file) = (folder.join("draft"), key_of(name));
        std::fs::write(&draft, lines.concat()).unwrap();
        let script = format!("chmod 0600 {0}; mv {0} {1}", draft.display(), file.display());
        assert!(cluster.network.script("mgmt", &script).0);
    };
    for name in &names {
        write(&cluster, name, &[old]);
        // Each node has a file of its own.
        let file = std::fs::read_to_string(cluster.file()).unwrap();
        let own = file.lines().map(|line| match line.starts_with("key_file") {
            true => format!("key_file = \"{}\"\n", key_of(name).display()),
            false => format!("{line}\n"),
        });
        std::fs::write(cluster.file(), own.collect::<String>()).unwrap();
        cluster.start(name);
    }
    cluster.is_whole(&names);
    for lines in [&[old, new][..], &[new, old], &[new]] {
        for name in &names {
            let before = cluster.said(name).matches("was read again").count();
            write(&cluster, name, lines);
            assert!(eventually(|| cluster.said(name).matches("was read again").count() > before));
        }
    }
    for name in &names {
        assert!(!cluster.said(name).contains("another key"), "{}", cluster.said(name));
        assert_eq!(cluster.dropped(name, "hello without the cluster's key"), 0);
    }
    // Who still has the old one is nobody's neighbour.
    write(&cluster, "b", &[old]);
    assert!(eventually(|| cluster
        .said("a")
        .contains("a hello with another key than this cluster's came in")));
    write(&cluster, "b", &[new]);
    cluster.is_whole(&names);
}

#[test]
fn a_cluster_without_a_key_says_at_every_start_that_anybody_can_be_a_node() {
    if !is_root() {
        return;
    }
    let mut cluster = two(Plan::default());
    let file = std::fs::read_to_string(cluster.file()).unwrap();
    let open: String =
        file.lines().filter(|line| !line.starts_with("key_file")).map(|line| format!("{line}\n")).collect();
    std::fs::write(cluster.file(), open.replace("insecure = true", "insecure = false")).unwrap();
    let (done, text) = cluster.network.run("a", &cluster.program("run", "a"));
    assert!(!done && text.contains("fabric: without a key"), "{text}");
    std::fs::write(cluster.file(), open).unwrap();
    for _ in 0..2 {
        cluster.start("a");
        let said = cluster.said("a");
        assert!(
            said.contains("insecure = true: fabric: without a key, everybody who reaches a link"),
            "{said}"
        );
        assert!(said.contains("fabric: this cluster has no key"), "{said}");
        cluster.kill("a");
    }
}
