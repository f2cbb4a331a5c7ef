//! What scripts can do, and what they cannot.

#![allow(clippy::unwrap_used, reason = "tests")]

use graph::graph::Registry;
use graph::testing::{Bench, configure};
use proptest::prelude::*;
use testbed::ipv4::ipv4;
use testbed::ipv6::{FAR, HOST, icmpv6, ipv6};

use crate::element::CLASS;

fn registry() -> Registry {
    let mut registry = elements::registry();
    registry.add(crate::CLASSES);
    registry
}

/// A bench around a script, with an input and `outputs` outputs.
fn bench(script: &str, outputs: usize) -> Bench {
    bench_with(script, "", outputs)
}

fn bench_with(script: &str, more: &str, outputs: usize) -> Bench {
    let text = script.replace('\\', "\\\\").replace('"', "\\\"");
    Bench::element(&registry(), &format!("Lua(\"{text}\"{more})"), 1, outputs)
}

fn frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], packet].concat()
}

/// The one's complement sum, by the definition of RFC 1071.
fn sum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A packet of UDP or TCP with its checksum.
fn transport(protocol: u8, source_port: u16, destination_port: u16) -> Vec<u8> {
    let mut segment = [source_port.to_be_bytes(), destination_port.to_be_bytes()].concat();
    match protocol {
        17 => segment.extend([0, 12, 0, 0, 1, 2, 3, 4]),
        _ => segment.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x02, 1, 0, 0, 0, 0, 0]),
    }
    let mut packet = ipv4([10, 0, 0, 1], [192, 0, 2, 9], protocol, &segment);
    let at = 20 + if protocol == 17 { 6 } else { 16 };
    let checksum = !transport_sum(&packet);
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The sum over pseudo header and segment, 0xffff if the checksum is right.
fn transport_sum(packet: &[u8]) -> u16 {
    sum(&packet[20..], u32::from(sum(&packet[12..20], u32::from(packet[9]) + packet.len() as u32 - 20)))
}

#[test]
fn merged_packets_come_whole_to_scripts_that_take_them_and_keep_their_end() {
    let script = "brickway.take_merged()
        function process(batch)
          local p = batch[1]
          handlers.read('seen', function() return p.pieces end)
          assert(p.pieces == 3 and batch:all():pieces() == 3 and batch:pieces() == 3 and #batch == 1)
          for _, change in ipairs { function() p:truncate(9) end, function() p:append(1) end, function() p:prepend(23) end } do
            local ok, why = pcall(change)
            assert(not ok and why:find('merged'), why)
          end
          p:strip(14) p:prepend(22) p:strip(8)
          assert(p.pieces == 3)
        end";
    let shared = graph::setup::Shared::default();
    let merged = elements::devices::MergedPorts(std::iter::once("eth1".to_owned()).collect());
    shared.get_or_make(elements::devices::MergedPorts::KEY, || Ok::<_, String>(merged)).unwrap();
    let config = format!("in :: TestInput -> e :: Lua(\"{script}\") -> out :: TestOutput");
    let mut bench = Bench::try_new(&registry(), &config, 32, &shared).unwrap();
    bench.pool().add_large(2).unwrap();
    let bytes = frame(&ipv4([10, 0, 0, 1], [192, 0, 2, 9], 17, &[7; 258]));
    let mut packet = bench.pool().allocate_large().unwrap();
    packet.reset_with_headroom(packet::pool::LARGE_HEADROOM, bytes.len()).unwrap().copy_from_slice(&bytes);
    let first = packet.data_offset() as u16;
    let merged =
        packet::Merged { piece_bytes: 100, network: first + 14, transport: first + 34, payload: first + 42 };
    packet.set_merged(merged);
    bench.push_packets("in", vec![packet]);
    assert_eq!((bench.read("e.last_error"), bench.taken("out")), (String::new(), vec![bytes]));
}

#[test]
fn packets_leave_by_the_outputs_that_the_script_names() {
    let script = "function process(batch)
        assert(#batch == 4 and batch.count == 4 and batch.input == 0)
        for number, p in batch:each() do
          local kind = p:u8(0)
          if kind == 1 then p:send(1) elseif kind == 2 then p:drop('two') elseif kind == 3 then p:send(0) end
        end
      end";
    let mut bench = bench(script, 2);
    bench.push("in0", &[&[0], &[1], &[2], &[3]]);
    assert_eq!(bench.taken("out0"), [vec![0], vec![3]]);
    assert_eq!(bench.taken("out1"), [vec![1]]);
    assert_eq!(bench.drops("e", "two"), 1);
}

#[test]
fn all_packets_of_a_batch_are_sent_and_dropped_at_once() {
    let script = "local calls = 0
      function process(batch)
        calls = calls + 1
        if calls == 1 then batch:send(1) elseif calls == 2 then batch:drop() else batch:send(0) batch[1]:drop('first') end
      end
      handlers.read('calls', function() return calls end, 'sum')";
    let mut bench = bench(script, 2);
    for _ in 0..3 {
        bench.push("in0", &[&[1], &[2]]);
    }
    assert_eq!((bench.taken("out0").len(), bench.taken("out1").len()), (1, 2));
    assert_eq!((bench.drops("e", "dropped by the script"), bench.drops("e", "first")), (2, 1));
    assert_eq!(bench.read("e.calls"), "3");
}

#[test]
fn packets_of_a_script_without_outputs_end_there() {
    let mut bench = bench(
        "local n = 0 function process(b) n = n + #b end handlers.read('n', function() return n end)",
        0,
    );
    bench.push("in0", &[&[1], &[2]]);
    assert_eq!(bench.read("e.n"), "2");
    assert_eq!(bench.graph().context().pool().stats().free, 4096);
}

#[test]
fn bytes_are_read_and_written_in_network_order() {
    let script = "function process(batch)
        local p = batch[1]
        p:set_u16(0, p:u16(0) + 1)
        p:set_u32(2, p:u32(2) + 1)
        p:set_u8(6, p:u8(6) + 1)
        p:set_bytes(7, p:bytes(8, 2))
        p:strip(1) p:append(1) p:set_u8(p.length - 1, 9) p:prepend(2) p:set_u16(0, 0xabcd)
      end";
    let mut bench = bench(script, 1);
    bench.push("in0", &[&[0, 0xff, 0xff, 0xff, 0xff, 0xfe, 7, 0, 1, 2]]);
    assert_eq!(bench.taken("out0"), [vec![0xab, 0xcd, 0, 0xff, 0xff, 0xff, 0xff, 8, 1, 2, 2, 9]]);
}

#[test]
fn headers_are_found_and_have_the_fields_of_their_protocols() {
    let script = "function process(batch)
        for _, p in batch:each() do
          local e, v, ip, ip6, u, t, i = p.eth, p.vlan, p.ip, p.ip6, p.udp, p.tcp, p.icmp
          print(p.length, e and e.type, v and v.id, v and v.priority, ip and brickway.format_ip(ip.src), ip and ip.dst,
            ip and ip.ttl, ip and ip.protocol, ip6 and ip6.hop_limit, ip6 and ip6.dst == brickway.ip6('2001:db8:2::8'),
            u and u.src_port, u and u.dst_port, t and t.seq, t and t.syn, t and t.has_ack, i and i.type)
        end
      end";
    let mut bench = bench(script, 1);
    let udp = transport(17, 53, 4000);
    let tagged = [&frame(&[])[..12], &[0x81, 0, 0x60, 7, 8, 0], &transport(6, 1, 2)].concat();
    let ip6 =
        [&frame(&[])[..12], &[0x86, 0xdd], &ipv6(HOST, FAR, 58, &icmpv6(HOST, FAR, 128, &[0; 4]))].concat();
    let mut fragment = udp.clone();
    fragment[7] = 1;
    bench.push("in0", &[&frame(&udp), &tagged, &ip6, &frame(&fragment), &[1, 2, 3]]);
    let lines = [
        "e: 46 2048 nil nil 10.0.0.1 3221225993 64 17 nil nil 53 4000 nil nil nil nil",
        "e: 58 33024 7 3 10.0.0.1 3221225993 64 6 nil nil nil nil 1 true false nil",
        "e: 62 34525 nil nil nil nil nil nil 64 true nil nil nil nil nil 128",
        "e: 46 2048 nil nil 10.0.0.1 3221225993 64 17 nil nil nil nil nil nil nil nil",
        "e: 3 nil nil nil nil nil nil nil nil nil nil nil nil nil nil nil",
    ];
    assert_eq!(bench.messages(), lines);
}

#[test]
fn checksums_follow_what_is_set() {
    let script = "function process(batch)
        for _, p in batch:each() do
          local ip = p.ip
          ip.ttl, ip.src, ip.dst, ip.tos, ip.id = ip.ttl - 1, brickway.ip('198.51.100.7'), ip.dst + 1, 0xb8, 77
          local ports = p.udp or p.tcp
          ports.src_port, ports.dst_port = 1234, ports.dst_port + 1
          if p.tcp then p.tcp.seq, p.tcp.flags, p.tcp.window = 0xdeadbeef, 0x12, 5 end
        end
      end";
    let mut bench = bench(script, 1);
    bench.push("in0", &[&frame(&transport(17, 53, 4000)), &frame(&transport(6, 80, 65534))]);
    for packet in bench.taken("out0") {
        let packet = &packet[14..];
        assert_eq!((sum(&packet[..20], 0), transport_sum(packet)), (0xffff, 0xffff), "{packet:?}");
        assert_eq!((packet[8], packet[1], &packet[12..16]), (63, 0xb8, &[198, 51, 100, 7][..]));
    }
}

proptest! {
    #[test]
    fn checksums_follow_any_field(src: u32, dst: u32, ttl: u8, tos: u8, id: u16, port: u16, seq: u32, tcp: bool) {
        let set = if tcp { format!("p.tcp.dst_port, p.tcp.seq = {port}, {seq}") } else { format!("p.udp.dst_port = {port}") };
        let script = format!("function process(batch)
            local p = batch[1]
            local ip = p.ip
            ip.src, ip.dst, ip.ttl, ip.tos, ip.id = {src}, {dst}, {ttl}, {tos}, {id}
            {set}
          end");
        let mut bench = bench(&script, 1);
        bench.push("in0", &[&frame(&transport(if tcp { 6 } else { 17 }, 1, 2))]);
        let packet = &bench.taken("out0")[0][14..];
        prop_assert_eq!((sum(&packet[..20], 0), transport_sum(packet)), (0xffff, 0xffff));
        prop_assert_eq!(&packet[12..20], &[src.to_be_bytes(), dst.to_be_bytes()].concat()[..]);
        prop_assert_eq!((packet[8], packet[1], &packet[4..6]), (ttl, tos, &id.to_be_bytes()[..]));
        prop_assert_eq!(&packet[22..24], &port.to_be_bytes()[..]);
    }

    /// Headers and accessors stay within the packet, whatever the bytes.
    #[test]
    fn any_bytes_are_read_within_the_packet(
        packets in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..120),
            testbed::ipv4::any_packet().prop_map(|packet| frame(&packet)),
            testbed::ipv6::any_packet().prop_map(|packet| [&frame(&[])[..12], &[0x86, 0xdd], &packet[..]].concat()),
        ], 1..40),
        offset in -3_i64..130,
    ) {
        let script = format!("local names = {{'eth', 'vlan', 'ip', 'ip6', 'udp', 'tcp', 'icmp'}}
          function process(batch)
            for _, p in batch:each() do
              for _, name in ipairs(names) do
                local h = p[name]
                if h and name ~= 'eth' and name ~= 'ip6' and name ~= 'vlan' then h.checksum = h.checksum end
              end
              local ok = pcall(p.u32, p, {offset})
              assert(ok == ({offset} >= 0 and {offset} + 4 <= p.length))
              ok = pcall(p.bytes, p, {offset}, 3)
              assert(ok == ({offset} >= 0 and {offset} + 3 <= p.length))
            end
          end");
        let mut bench = bench(&script, 1);
        let borrowed: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        bench.push("in0", &borrowed);
        prop_assert_eq!(bench.read("e.errors"), "0");
        prop_assert_eq!(bench.taken("out0"), packets);
    }
}

/// Pushes two packets through `process` with this in it. Returns what was logged first.
fn mistake(line: &str) -> String {
    let mut bench = bench(&format!("function process(batch)\n{line}\nend"), 1);
    bench.push("in0", &[&[1, 2, 3], &[4]]);
    assert_eq!((bench.read("e.errors"), bench.drops("e", "script error")), ("1".to_owned(), 2), "{line}");
    bench.messages().remove(0)
}

#[test]
fn mistakes_are_errors_with_their_line_and_not_memory() {
    for (line, message) in [
        ("batch[1]:u8(3)", "1 bytes at 3 lie outside of the packet's 3"),
        ("batch[1]:u16(2)", "2 bytes at 2 lie outside of the packet's 3"),
        ("batch[1]:u8(-1)", "1 bytes at -1 lie outside of the packet's 3"),
        ("batch[1]:u8(0/0)", "1 bytes at nan lie outside of the packet's 3"),
        ("batch[1]:set_u32(1e18, 1)", "4 bytes at 1e+18 lie outside of the packet's 3"),
        ("batch[1]:bytes(0, 1e9)", "1000000000 bytes at 0 lie outside of the packet's 3"),
        ("batch[1]:set_bytes(2, 'ab')", "2 bytes at 2 lie outside of the packet's 3"),
        ("batch[1]:set_u8(0, 256)", "expected an 8-bit number, not 256"),
        ("batch[3]:u8(0)", "no packet 3 in a batch of 2, which has packets from 1 on"),
        ("batch[0]:u8(0)", "no packet 0 in a batch of 2, which has packets from 1 on"),
        ("batch[1]:send(1)", "output 1 is not connected; there are 1, from 0 on"),
        ("batch[1]:strip(4)", "4 bytes at 0 lie outside of the packet's 3"),
        ("batch[1]:prepend(1e6)", "no room for 1000000 bytes before the packet; there are 128"),
        ("batch[1].paint = -1", "expected an 8-bit number, not -1"),
        ("batch[1]:annotation_u32(45)", "an annotation of 4 bytes at 45; there are 48"),
        ("batch[1].colour = 1", "a packet has no 'colour' to set"),
        ("return batch[1].colour", "a packet has no 'colour'"),
        ("batch[1]:drop(('x'):rep(65))", "expected 1 to 64 characters"),
        ("brickway.ip('1.2.3')", "'1.2.3' is no IPv4 address; expected one like 192.0.2.1"),
        ("brickway.ip6('::x')", "'::x' is not an IPv6 address; expected one like 2001:db8::1"),
        ("brickway.transmit('x', 1)", "output 1 is not connected; there are 1, from 0 on"),
        ("nothing()", "attempt to call global 'nothing' (a nil value)"),
        ("error('mine')", "mine"),
    ] {
        let text = mistake(line);
        assert!(text.starts_with("e: script:2: "), "{line}: {text}");
        assert!(text.ends_with(message), "{line}: {text}");
    }
}

#[test]
fn what_reaches_memory_or_files_is_out_of_reach() {
    for name in [
        "ffi",
        "io",
        "os",
        "debug",
        "package",
        "require",
        "load",
        "loadstring",
        "dofile",
        "loadfile",
        "getfenv",
        "setfenv",
        "newproxy",
        "jit",
        "collectgarbage",
        "string.dump",
        "module",
    ] {
        let script = format!("function process() end handlers.read('it', function() return {name} end)");
        assert_eq!(bench(&script, 1).read("e.it"), "nil", "{name}");
    }
    for line in [
        "batch[1].at = 0",
        "batch[1].generation = 0",
        "batch[1].number = 5",
        "batch.generation = 7",
        "local p = batch[1] + 1",
        "local p = batch + 1",
        "batch[1][0] = 1",
        "getmetatable('').__index.rep = nil",
        "getmetatable(batch[1]).__index = nil",
    ] {
        mistake(line);
    }
}

#[test]
fn what_is_kept_of_an_earlier_batch_is_an_error() {
    let script = "local kept, header
      function process(batch)
        if kept then
          local what = batch[1]:u8(0)
          if what == 1 then kept:u8(0) elseif what == 2 then kept:drop() elseif what == 3 then header.ttl = 1 end
        end
        kept, header = batch[1], batch[1].ip
      end
      handlers.read('kept', function() return kept.length end)";
    let mut bench = bench(script, 1);
    bench.push("in0", &[&frame(&transport(17, 1, 2))]);
    for what in 1..=3 {
        bench.push("in0", &[&[what]]);
    }
    assert_eq!(bench.read("e.errors"), "3");
    assert!(bench.messages().iter().all(|line| line.contains("was used after its batch had gone on")));
    let index = bench.graph().find("e").unwrap();
    let error = bench.graph().read(index, "kept", "").unwrap().unwrap_err();
    assert!(error.contains("was used after its batch had gone on"), "{error}");
}

#[test]
fn failed_batches_go_to_the_error_output_and_a_script_that_fails_on_is_out_of_the_way() {
    let script = "function process(batch) if batch[1]:u8(0) == 9 then error('nine') end end";
    let mut bench = bench_with(script, ", ERRORS 1", 2);
    for number in 0..110 {
        bench.push("in0", &[&[if number < 100 { 9 } else { 1 }]]);
    }
    assert_eq!((bench.taken("out0").len(), bench.taken("out1").len()), (0, 110));
    assert_eq!((bench.read("e.errors").as_str(), bench.messages().len()), ("100", 11));
    assert!(
        bench.read("e.state").starts_with("stopped: 100 errors within a second, the last: script:1: nine")
    );
    bench.write("e.reload", "").unwrap();
    bench.push("in0", &[&[1]]);
    assert_eq!((bench.taken("out0").len(), bench.read("e.state").as_str()), (1, "running"));
}

#[test]
fn a_call_that_does_not_return_is_stopped_compiled_or_not() {
    for script in [
        "function process(batch) while true do end end",
        "function process(batch) local n = 0 while true do n = n + batch[1]:u8(0) end end",
        "function process(batch) while true do pcall(function() while true do end end) end end",
        "local function deep(n) return deep(n + 1) end function process() deep(0) end",
        "function process() local f = coroutine.wrap(function() while true do end end) f() end",
        "function process() local s, t = ('x'):rep(1e7), {} for i = 1, 1e5 do t[i] = s end table.sort(t) while true do end end",
        "function process() xpcall(function() while true do end end, function() while true do end end) end",
    ] {
        let mut bench = bench_with(script, ", BUDGET 0.05", 1);
        bench.push("in0", &[&[1]]);
        bench.push("in0", &[&[1]]);
        let state = bench.read("e.state");
        assert!(state.contains("did not return within its budget"), "{script}: {state}");
        assert_eq!(
            (bench.drops("e", "script error"), bench.drops("e", "script stopped")),
            (1, 1),
            "{script}"
        );
    }
    let text = "Lua(\"while true do end\", BUDGET 0.05)";
    let error = Bench::try_new(&registry(), &format!("Idle -> {text} -> Discard;"), 32, &Default::default())
        .unwrap_err();
    assert!(error.contains("did not return within its budget"), "{error}");
}

#[test]
fn timers_and_new_packets() {
    let script = "function timer(key)
        brickway.transmit('key ' .. key .. ' at ' .. (brickway.now() - start), 1)
        if key == 7 then brickway.set_timer(2) end
      end
      start = brickway.now()
      brickway.set_timer(1, 7)
      function process(batch) brickway.transmit(batch[1]:bytes(), 0) brickway.transmit('more', 1) end";
    let mut bench = bench(
        &script
            .replace("start = brickway.now()", "start = nil")
            .replace("brickway.transmit('key '", "start = start or brickway.now() brickway.transmit('key '"),
        2,
    );
    bench.push("in0", &[b"one"]);
    assert_eq!(bench.taken("out0"), [b"one".to_vec(), b"one".to_vec()]);
    assert_eq!(bench.taken("out1"), [b"more".to_vec()]);
    bench.advance_ns(1_000_000_000);
    bench.advance_ns(2_000_000_000);
    assert_eq!(bench.taken("out1"), [b"key 7 at 0".to_vec(), b"key 0 at 2".to_vec()]);
}

/// A script whose handler `x` calls what it kept, after some batches. What the handler says does not count, only that all goes on.
fn survives(script: &str, batches: usize) -> Bench {
    let mut bench = bench(script, 1);
    for _ in 0..batches {
        bench.push("in0", &[&[1, 2, 3, 4], &[5, 6, 7, 8]]);
    }
    for _ in 0..3 {
        let element = bench.graph().find("e").unwrap();
        let _ = bench.graph().read(element, "x", "");
        bench.advance_ns(300_000_000);
        bench.push("in0", &[&[1, 2, 3, 4]]);
    }
    let _ = bench.write("e.reload", "");
    bench.push("in0", &[&[1, 2, 3, 4]]);
    bench
}

#[test]
fn what_waits_for_batches_is_of_no_use_elsewhere() {
    let scripts = [
        // After an error, from a handler and from a timer.
        "local nb, n = brickway.batches(), 0
         function process(b) n = n + 1 if n >= 20 then error('x') end end
         handlers.read('x', function() nb() return 'back' end)",
        "local nb, n = brickway.batches(), 0
         brickway.set_timer(0.2) function timer() nb() end
         function process(b) n = n + 1 if n >= 20 then error('x') end end",
        // After the budget was used up, where the script is saved.
        "local nb = brickway.batches()
         function save() nb() return 1 end
         for b in nb do while true do end end",
        "local nb = brickway.batches()
         function save() nb() return 1 end
         function process(b) while true do end end",
        // From another coroutine, and where the main loop waits for nothing.
        "local nb = brickway.batches()
         handlers.read('x', function() nb() return 'alive' end)
         coroutine.resume(coroutine.create(nb))
         while true do coroutine.yield() end",
        // In compiled code, within a call of process.
        "local nb, n = brickway.batches(), 0
         function process(b)
           n = n + 1
           if n % 300 == 0 then while true do local ok = pcall(nb) if not ok then return end end end
         end
         handlers.read('x', function() local t = {} for i = 1, 100000 do t[i] = { i } end return 'n ' .. n end)",
        "local nb = brickway.batches()
         function process(b) pcall(nb) end",
    ];
    for script in scripts {
        survives(script, 1000);
    }
}

#[test]
fn no_packet_passes_a_script_that_did_not_see_it() {
    let script = "local nb = brickway.batches()
        handlers.read('x', function() return 'x' end)
        function process(b) pcall(nb) b:drop('seen') end";
    let mut bench = bench(script, 1);
    for _ in 0..20 {
        bench.push("in0", &[&[1], &[2]]);
        bench.read("e.x");
    }
    assert_eq!(bench.taken("out0"), Vec::<Vec<u8>>::new());
    let script = "coroutine.resume(coroutine.create(brickway.batches())) while true do coroutine.yield() end";
    let mut bench = self::bench(script, 1);
    bench.push("in0", &[&[1], &[2]]);
    assert_eq!((bench.taken("out0").len(), bench.drops("e", "script error")), (0, 2));
}

#[test]
fn queues_stay_within_their_number_whatever_their_settings_do() {
    let script = "local made, refused = {}, 0
        local function add(settings)
          local ok, queue = pcall(brickway.queue, settings)
          if ok then made[#made + 1] = queue else refused = refused + 1 end
        end
        for i = 1, 63 do add { output = 0, capacity = 1 } end
        local function nest(n)
          add(setmetatable({}, { __index = function(t, k)
            if k == 'output' then if n > 0 then nest(n - 1) end return 0 end
            if k == 'capacity' then return 1 end end }))
        end
        nest(3)
        for i = 1, 400 do add { output = 0, capacity = 1 } end
        function process(b) end
        handlers.read('made', function() return #made .. ' ' .. made[#made]:length() end)";
    assert_eq!(bench(script, 1).read("e.made"), "64 0");
}

#[test]
fn a_main_loop_that_begins_anew_has_its_queues_and_filters_anew() {
    let script = "local q, f = brickway.queue { output = 0 }, brickway.filter('udp')
        local n = 0
        for batch in brickway.batches() do
          n = n + 1
          if n == 2 then error('bad packet') end
          batch:all():enqueue(q)
        end";
    let mut bench = bench(script, 1);
    for _ in 0..300 {
        bench.push("in0", &[&[1]]);
        bench.advance_ns(50_000_000);
    }
    // Every second batch is an error.
    assert_eq!((bench.taken("out0").len(), bench.drops("e", "script error")), (150, 150));
}

#[test]
fn a_queue_holds_packets_of_the_call_that_made_it() {
    let script = "local q function process(b) q = q or brickway.queue { output = 0 } b[1]:enqueue(q) end";
    let mut bench = bench(script, 1);
    bench.push("in0", &[&[1]]);
    bench.push("in0", &[&[2]]);
    assert_eq!(bench.taken("out0"), [[1], [2]]);
}

#[test]
fn bytes_are_what_was_written_last_by_whatever_size_compiled_or_not() {
    let frame = frame(&transport(17, 4000, 53));
    // Each is short enough to be compiled as one loop. A value that was read before must not stand for what was written since.
    for (write, is_right) in [
        ("p:set_u8(3, 5) p:set_u32(0, 0) p:set_u8(3, 5)", "p:u8(3) == 5 and p:u32(0) == 5"),
        ("seen = p:u8(5) p:set_u32(4, n)", "p:u8(5) == bit.band(bit.rshift(n, 16), 255)"),
        ("seen = p:u16(6) p:set_u32(4, n)", "p:u16(6) == bit.band(n, 65535)"),
        ("seen = p:u32(4) p:set_u8(7, n % 256)", "p:u32(4) % 256 == n % 256"),
        ("seen = p:u32(4) p:set_u16(6, n % 65536)", "p:u32(4) % 65536 == n % 65536"),
        ("seen = p:u8(22) p.ip.ttl = n % 200 + 2", "p:u8(22) == n % 200 + 2"),
        ("seen = p.ip.ttl p:set_u8(22, n % 200 + 2)", "p.ip.ttl == n % 200 + 2"),
        ("seen = p:u32(30) p.ip.dst = n", "p:u32(30) == n and p.ip.dst == n"),
        ("seen = p.destination p:set_annotation_u8(3, n % 256)", "p.destination % 256 == n % 256"),
        ("p:set_annotation_u32(0, n)", "p:annotation_u8(0) == n % 256 and p:annotation_u32(0) == n"),
        ("p:set_u32(8, 4294967295)", "p:u32(8) == 4294967295"),
    ] {
        let script = format!(
            "local n, wrong = 0, 0
             handlers.read('wrong', function() return wrong end)
             function process(b)
               local seen
               for i = 1, #b do
                 local p = b[i]
                 n = n + 1
                 {write}
                 if not ({is_right}) then wrong = wrong + 1 end
               end
             end"
        );
        let mut bench = bench(&script, 1);
        for _ in 0..300 {
            bench.push("in0", &[&frame[..]; 8]);
            bench.taken("out0");
        }
        assert_eq!(bench.messages(), Vec::<String>::new(), "{write}");
        assert_eq!(bench.read("e.wrong"), "0", "{write}");
    }
}

#[test]
fn library_functions_are_bounded_by_what_they_make() {
    for (call, problem) in [
        ("string.gsub(('a'):rep(1000), 'a', ('y'):rep(1000000))", "too much work"),
        ("table.concat({ ('x'):rep(16000000), ('x'):rep(16000000) }, '', 0.5, 2.4)", "more than"),
        (
            "string.format(('%s'):rep(3), ('x'):rep(8000000), ('x'):rep(8000000), ('x'):rep(8000000))",
            "at most",
        ),
        ("batch:drop(('x'):rep(1000))", "expected 1 to 64 characters"),
    ] {
        let mut bench = bench(&format!("function process(batch) {call} end"), 1);
        bench.push("in0", &[&[1]]);
        assert!(bench.messages()[0].contains(problem), "{call}: {:?}", bench.messages());
    }
    let script = "function process() for i = 1, 17 do pcall(coroutine.resume, nil) end print(string.format('%d', 7)) end";
    let mut bench = bench(script, 1);
    bench.push("in0", &[&[1]]);
    assert!(bench.messages()[0].ends_with(": 7"), "{:?}", bench.messages());
}

#[test]
fn filters_have_the_language_of_ip_classifier_marked_or_not() {
    let script = "local dns, tcp = brickway.filter('udp port 53'), brickway.filter('tcp')
      function process(batch)
        batch:match(dns):send(1)
        batch:match(tcp, batch:undecided()):send(2)
      end";
    let dns = frame(&transport(17, 4000, 53));
    let others = [frame(&transport(17, 4000, 54)), vec![0; 20], Vec::new(), dns[..30].to_vec()];
    let tcp = frame(&transport(6, 53, 4000));
    let all = [&[dns.clone(), tcp.clone()][..], &others].concat();
    for before in ["", "MarkIPHeader(14) -> "] {
        let config = format!(
            "in :: TestInput -> {before} e :: Lua(\"{script}\");
             e[0] -> out0 :: TestOutput; e[1] -> out1 :: TestOutput; e[2] -> out2 :: TestOutput;"
        );
        let mut bench = Bench::new(&registry(), &config);
        bench.push("in", &all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!((bench.taken("out1"), bench.taken("out2")), (vec![dns.clone()], vec![tcp.clone()]));
        assert!(bench.taken("out0").len() >= 3, "{before}");
    }
    for (call, problem) in [
        ("brickway.filter('udp port')", "port"),
        ("brickway.filter(('tcp or '):rep(1000) .. 'udp')", "expected 4096 at most"),
        ("batch:match('udp')", "expected a filter, as of brickway.filter, not the string 'udp'"),
    ] {
        let mut bench = bench(&format!("function process(batch) {call} end"), 1);
        bench.push("in0", &[&[1]]);
        assert!(bench.messages()[0].contains(problem), "{:?}", bench.messages());
    }
}

#[test]
fn an_output_takes_packets_from_queues_by_priority_and_by_turns() {
    let script = "brickway.pace { output = 0, batch = 256, timeout = 0.001 }
      local queues = {}
      for i, priority in ipairs { 2, 1, 1 } do queues[i] = brickway.queue { output = 0, priority = priority, capacity = 3 } end
      handlers.read('lengths', function()
        return queues[1]:length() .. ' ' .. queues[2]:length() .. ' ' .. queues[3]:length()
      end)
      function process(batch)
        for _, p in batch:each() do
          local queue = queues[p:u8(0)]
          if queue then p:enqueue(queue) end
        end
      end";
    let mut bench = bench(script, 1);
    bench.push("in0", &[&[9], &[1, 1], &[2, 1], &[2, 2], &[3, 1], &[2, 3], &[2, 4], &[3, 2]]);
    assert_eq!(bench.taken("out0"), Vec::<Vec<u8>>::new());
    assert_eq!((bench.read("e.lengths"), bench.drops("e", "queue full")), ("1 3 2".into(), 1));
    bench.advance_ns(1_000_000);
    let order = [&[2, 1][..], &[3, 1], &[2, 2], &[3, 2], &[2, 3], &[1, 1], &[9]];
    assert_eq!(bench.taken("out0"), order);
    assert_eq!(bench.read("e.lengths"), "0 0 0");
}

#[test]
fn an_output_sends_larger_batches_and_keeps_its_rate() {
    let script = "brickway.pace { output = 0, rate = 8e6, batch = 4, timeout = 0.01 }
      function process(batch) end";
    let mut bench = bench(script, 1);
    let packet = [7; 1000];
    bench.push("in0", &[&packet[..]; 3]);
    assert_eq!(bench.taken("out0").len(), 0);
    // A megabyte a second: one packet in a millisecond, and one before it, after the output was idle.
    bench.push("in0", &[&packet[..]; 3]);
    assert_eq!(bench.taken("out0").len(), 2);
    for _ in 0..4 {
        bench.advance_ns(10_000_000);
    }
    assert_eq!(bench.taken("out0").len(), 4);
}

#[test]
fn red_drops_some_before_the_queue_is_full_and_all_beyond_its_maximum() {
    let script = "brickway.pace { output = 0, batch = 256, timeout = 1 }
      local q = brickway.queue { output = 0, capacity = 65536, red_min = 50, red_max = 100, red_probability = 0.1 }
      function process(batch) batch:all():enqueue(q) end";
    let mut bench = bench(&script.replace("batch = 256", "rate = 1, batch = 1"), 1);
    let mut dropped = Vec::new();
    for _ in 0..200 {
        bench.push("in0", &[&[1; 100][..]; 10]);
        dropped.push(bench.drops("e", "dropped early"));
    }
    let queued = 2000 - bench.taken("out0").len() as u64 - dropped[199];
    // The average follows slowly; in the end it is beyond 100, and nothing is queued any more.
    assert!(dropped[10] == 0 && dropped[199] > 100, "{dropped:?}");
    assert_eq!(dropped[199] - dropped[190], 90, "{dropped:?}, {queued} queued");
    assert!(dropped.windows(2).any(|pair| (1..10).contains(&(pair[1] - pair[0]))), "{dropped:?}");
}

#[test]
fn queues_outlive_reloads_and_mistakes_in_their_settings_are_errors() {
    let script = "brickway.pace { output = 0, batch = 9, timeout = 1 } function process(batch) end";
    let mut with_queue = bench(script, 1);
    with_queue.push("in0", &[&[1], &[2]]);
    with_queue.write("e.reload", "").unwrap();
    assert_eq!(with_queue.taken("out0"), [[1], [2]]);
    for (call, problem) in [
        ("queue { output = 1 }", "output is 1; expected a number from 0 to 0"),
        ("queue { output = 0, size = 3 }", "no setting 'size'"),
        ("queue { output = 0, capacity = 1e6 }", "capacity is 1000000; expected a number from 1 to 65536"),
        ("queue(3)", "expected settings, as in { output = 0 }, not 3"),
        ("pace { output = 0, batch = 'x' }", "batch is the string 'x'; expected a number from 1 to 256"),
    ] {
        let mut bench = bench(&format!("function process(batch) brickway.{call} end"), 1);
        bench.push("in0", &[&[1]]);
        assert!(bench.messages()[0].ends_with(problem), "{call}: {:?}", bench.messages());
    }
    let mut bench = bench("function process(batch) batch[1]:enqueue({}) end", 1);
    bench.push("in0", &[&[1]]);
    assert!(bench.messages()[0].contains("expected a queue, as of brickway.queue"), "{:?}", bench.messages());
}

#[test]
fn a_call_makes_only_so_many_packets_and_lines() {
    let script = "function process() for i = 1, 300 do brickway.transmit('x') end end
      handlers.write('talk', function() for i = 1, 50 do print(i) end end)";
    let mut bench = bench(script, 1);
    bench.push("in0", &[&[1]]);
    assert_eq!(bench.taken("out0").len(), 256);
    assert!(bench.messages()[0].ends_with("more than 256 packets in one call"));
    bench.write("e.talk", "").unwrap();
    bench.advance_ns(2_000_000_000);
    bench.write("e.talk", "").unwrap();
    assert!(bench.messages().iter().any(|line| line.ends_with("more lines")));
}

#[test]
fn handlers_are_those_that_the_script_declares() {
    let script = "local n = 1
      handlers.read('n', function(more) return n + (tonumber(more) or 0) end, 'sum')
      handlers.write('n', function(value) n = tonumber(value) or error('expected a number', 0) end)
      handlers.write('only_written', function() end)
      function process() end";
    let mut bench = bench(script, 1);
    assert_eq!(bench.read("e.exports"), "n\nonly_written");
    bench.write("e.n", "5").unwrap();
    assert_eq!((bench.read("e.n"), bench.read("e.n 2")), ("5".into(), "7".into()));
    assert_eq!(bench.write("e.n", "x").unwrap_err(), "expected a number");
    assert!(bench.write("e.nothing", "x").is_err());
    assert_eq!(bench.read("e.errors"), "0");
    let listed = bench.read("e.handlers");
    assert!(listed.contains("\nn\trw\n") && listed.contains("\nonly_written\tw\n"), "{listed}");
}

#[test]
fn mistakes_of_the_configuration_say_what_would_be_right() {
    for (config, message) in [
        ("", "expected a script in quotes, or FILE and its file; not both"),
        ("\"function process() end\", FILE x", "expected a script in quotes, or FILE and its file; not both"),
        ("FILE /nothing/here.lua", "/nothing/here.lua: No such file"),
        ("\"function process( end\"", ":1: "),
        ("\"function process() end\", BUDGET 0", "10 ms"),
        ("\"function process() end\", ALLOW \"io files\"", "ffi, io, os or require"),
        ("\"function process() end\", ERRORS 3", "ERRORS is 3; expected one of the 1 outputs"),
    ] {
        let error = configure(&CLASS, config).unwrap_err().join("\n");
        assert!(error.contains(message), "{config}: {error}");
    }
    for (script, message) in [
        ("x = 1", "no function process(batch), and no loop over brickway.batches()"),
        ("error('at once')", "script:1: at once"),
        ("handlers.read('a b', function() end) function process() end", "handler 'a b': expected letters"),
        ("handlers.read('a') function process() end", "expected handlers.read(NAME, FUNCTION [, COMBINE])"),
        ("\u{1b}LJ", "attempt to load a binary chunk"),
    ] {
        let config = format!("Idle -> e :: Lua(\"{script}\") -> Discard;");
        let error = Bench::try_new(&registry(), &config, 32, &Default::default()).unwrap_err();
        assert!(error.contains(message), "{script}: {error}");
        let error = configure(&CLASS, &format!("\"{script}\"")).unwrap_err().join("\n");
        assert!(error.contains(message), "{script}: {error}");
    }
}

#[test]
fn a_script_is_replaced_with_its_state_and_a_broken_one_is_not_loaded() {
    let file = std::env::temp_dir().join(format!("brickway-lua-{}.lua", std::process::id()));
    let write = |answer: &str| {
        let script = format!("local seen = {{}}
          function process(batch) for _, p in batch:each() do seen[#seen + 1] = {{ byte = p:u8(0), even = p:u8(0) % 2 == 0 }} end end
          function save() return seen end
          function restore(saved) seen = saved end
          handlers.read('answer', function() return '{answer} ' .. #seen .. ' ' .. seen[#seen].byte end)");
        std::fs::write(&file, script).unwrap();
    };
    write("first");
    let mut bench = Bench::element(&registry(), &format!("Lua(FILE {})", file.display()), 1, 1);
    bench.push("in0", &[&[5], &[6]]);
    assert_eq!(bench.read("e.answer"), "first 2 6");
    write("second");
    bench.write("e.reload", "").unwrap();
    assert_eq!(bench.read("e.answer"), "second 2 6");
    std::fs::write(&file, "function process( ").unwrap();
    let error = bench.write("e.reload", "").unwrap_err();
    assert!(error.contains(":1: "), "{error}");
    bench.push("in0", &[&[7]]);
    assert_eq!((bench.read("e.answer"), bench.taken("out0").len()), ("second 3 7".into(), 3));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn libraries_are_there_when_they_are_allowed() {
    let script = "local name = os.getenv('HOME') and 'os' function process() end
      handlers.read('it', function() return name .. tostring(ffi.sizeof('int')) .. type(io.open) .. type(require) end)";
    assert_eq!(bench_with(script, ", ALLOW \"ffi os io require\"", 1).read("e.it"), "os4functionfunction");
}

#[test]
fn masks_are_sets_of_packets() {
    let script = "function process(batch)
        local all, some = batch:all(), batch:none()
        for number in all:each() do if batch[number]:u8(0) % 2 == 0 then some:set(number) end end
        local rest = all:minus(some)
        assert(#all == #batch and #some + #rest == #all and #some:union(rest) == #all)
        assert(some:intersection(rest):is_empty() and not all:is_empty())
        for number, p in some:each() do assert(some:has(number) and not rest:has(number) and p:u8(0) % 2 == 0) end
        local first = batch:all()
        for number = 2, #batch do first:clear(number) end
        some:send(1)
        assert(#batch:undecided() == #rest)
        rest:drop('odd')
        first:send(0)
      end";
    let mut bench = bench(script, 2);
    for count in [1_u8, 2, 31, 32] {
        let packets: Vec<[u8; 1]> = (0..count).map(|number| [number]).collect();
        bench.push("in0", &packets.iter().map(|packet| &packet[..]).collect::<Vec<_>>());
        assert_eq!((bench.read("e.errors"), bench.messages()), ("0".to_owned(), vec![]));
        assert_eq!(bench.taken("out0"), [vec![0]]);
        assert_eq!(bench.taken("out1").len(), usize::from(count.div_ceil(2)) - 1);
    }
    assert_eq!(bench.drops("e", "odd"), (1 + 15 + 16) as u64);
}

#[test]
fn masks_of_other_batches_and_too_many_are_errors() {
    let script = "local kept function process(batch) if kept then kept:set(1) end kept = batch:all() end";
    let mut first = bench(script, 1);
    first.push("in0", &[&[1]]);
    first.push("in0", &[&[1]]);
    assert!(first.messages()[0].contains("was used after its batch had gone on"));
    assert!(mistake("for i = 1, 65 do batch:all() end").ends_with("more than 64 masks of one batch"));
    assert!(mistake("batch:all():set(3)").contains("no packet 3 in a batch of 2"));
    assert!(mistake("batch:lookup()").ends_with("this element has no forwarding tables; LuaRouter has them"));
}

#[test]
fn a_main_loop_keeps_its_variables_and_begins_anew_after_an_error() {
    let script = "local total = 0
      function save() return total end
      function restore(saved) total = saved end
      handlers.read('total', function() return total end)
      local own = 0
      for batch in brickway.batches() do
        total, own = total + #batch, own + 1
        if batch[1]:u8(0) == 9 then error('nine') end
        print(total, own)
      end";
    let mut bench = bench(script, 1);
    for byte in [1, 1, 9, 1, 1] {
        bench.push("in0", &[&[byte]]);
    }
    assert_eq!(bench.messages(), ["e: 1 1", "e: 2 2", "e: script:8: nine", "e: 4 1", "e: 5 2"]);
    assert_eq!(
        (bench.read("e.total"), bench.read("e.errors"), bench.taken("out0").len()),
        ("5".into(), "1".into(), 4)
    );
    bench.write("e.reload", "").unwrap();
    bench.push("in0", &[&[1]]);
    assert_eq!(bench.messages(), ["e: 6 1"]);
}

#[test]
fn a_main_loop_that_ends_or_spins_is_an_error() {
    let mut bench1 = bench("for batch in brickway.batches() do break end", 1);
    bench1.push("in0", &[&[1]]);
    assert_eq!(bench1.messages(), ["e: the main loop ended"]);
    let mut bench2 =
        bench_with("for batch in brickway.batches() do while true do end end", ", BUDGET 0.05", 1);
    bench2.push("in0", &[&[1]]);
    assert!(bench2.read("e.state").contains("did not return within its budget"));
    assert!(mistake("for b in brickway.batches() do end").contains("is for the script itself"));
}

#[test]
fn what_is_forged_is_refused() {
    for line in [
        "local p = batch[1] p.u8({ generation = 1, number = 0 }, 0)",
        "local p = batch[1] p.annotation_u32({ generation = 1, number = 7, at = 4096 }, 0)",
        "local p = batch[1] p.set_annotation_u32(batch, 0, 1)",
        "local p = batch[1] p.send({ number = 500 }, 0)",
        "local m = batch:all() m.has({ generation = m.generation, slot = 900 }, 1)",
        "local m = batch:all() m.set({ generation = m.generation, slot = 900 }, 1)",
        "local m = batch:all() m:minus({ slot = 900 })",
        "batch:all():union(batch[1])",
        "local f, m = batch:all():each() f(m, -100)",
        "local f, m = batch:all():each() f(m, {})",
        "local f, b = batch:each() f(b, -5)",
        "batch[1]:set_bytes(0, batch:all())",
        "batch[1]:set_bytes(0, 1ULL)",
        "batch[1]:u8(0ULL)",
        "local n = 0 + batch[1].at",
        "handlers.read('reload', function() end) brickway.ip({})",
        "brickway.transmit(('x'):rep(65536))",
        "('a'):rep(1e9)",
        "('a'):rep(3000):find(('a-'):rep(20) .. 'b')",
        "('a'):rep(2e6):find(('a'):rep(1e6) .. 'b', 1, true)",
        "local t = {} for i = 1, 200001 do t[i] = i end table.sort(t)",
        "string.find(('a'):rep(9000), '[^' .. ('c'):rep(9000) .. ']*x')",
        "string.find(('a'):rep(9990), '(.*)%1x')",
        "local t = {} for i = 1, 20 do t[i] = ('x'):rep(1e6) end table.concat(t)",
        "local o = setmetatable({}, { __tostring = function(o) return string.format('%s', o) end }) string.format('%s', o)",
        "local function f() return (('a'):gsub('a', f)) end f()",
        "local function f() return coroutine.wrap(f)() end f()",
        "local function f() table.sort({ 1, 2, 3 }, f) end f()",
    ] {
        mistake(line);
    }
}

#[test]
fn an_address_is_set_within_the_packet_whatever_its_header_says() {
    // The header says 1500 bytes; 2 bytes of TCP are there, and then the next frame's.
    let mut packet = frame(&transport(6, 1, 2))[..36].to_vec();
    packet[16..18].copy_from_slice(&1500_u16.to_be_bytes());
    let script = "function process(batch) for _, p in batch:each() do
        p:append(30) for i = 1, 20 do p:set_u8(35 + i, 0xee) end p:truncate(36)
        p.ip.src = brickway.ip('1.2.3.4') p.ip.dst = brickway.ip('5.6.7.8')
        p:append(20)
      end end";
    let mut bench = bench(script, 1);
    bench.push("in0", &[&packet]);
    let taken = bench.taken("out0").remove(0);
    assert!(taken[36..].iter().all(|byte| *byte == 0xee), "{taken:?}");
    assert_eq!(bench.read("e.errors"), "0");
}

#[test]
fn handlers_of_the_element_are_not_taken() {
    let config = "Idle -> Lua(\"handlers.read('state', function() end) function process() end\") -> Discard;";
    let error = Bench::try_new(&registry(), config, 32, &Default::default()).unwrap_err();
    assert!(error.contains("handler 'state': the element has one of this name already"), "{error}");
    let error = configure(&CLASS, "examples/x.lua").unwrap_err().join("\n");
    assert!(error.contains("expected FILE examples/x.lua"), "{error}");
}

#[test]
fn lines_of_the_log_are_single_and_short() {
    let mut bench = bench("function process() print('one\\n\\27[31mtwo') print(('y'):rep(1e6)) end", 1);
    bench.push("in0", &[&[1]]);
    let lines = bench.messages();
    assert_eq!(lines[0], "e: one\\n\\u{1b}[31mtwo");
    assert!(lines[1].len() < 500 && lines[1].ends_with(" ..."));
}

#[test]
fn a_script_sends_while_it_is_loaded_and_one_that_cannot_be_saved_is_replaced() {
    let mut bench =
        bench("brickway.transmit('at once') function process() end function save() return print end", 1);
    assert_eq!(bench.taken("out0"), [b"at once".to_vec()]);
    bench.write("e.reload", "").unwrap();
    let line = bench.messages().remove(0);
    assert!(line.contains("a function cannot be kept") && line.ends_with("nothing was saved"), "{line}");
    bench.push("in0", &[&[1]]);
    assert_eq!(bench.taken("out0").len(), 2);
}

#[test]
fn what_is_saved_is_bounded_and_masks_are_of_a_batch() {
    let script = "local s, b = ('x'):rep(16e6)
      function save() return { s, s, s, s, s } end
      function process(batch) b = batch end
      handlers.read('mask', function() return b:none() end)";
    let mut bench = bench(script, 1);
    bench.push("in0", &[&[1]]);
    bench.write("e.reload", "").unwrap();
    assert!(bench.messages()[0].contains("save: strings of more than 67108864 bytes"));
    bench.push("in0", &[&[1]]);
    let index = bench.graph().find("e").unwrap();
    let error = bench.graph().read(index, "mask", "").unwrap().unwrap_err();
    assert!(error.contains("a mask outside of a batch"), "{error}");
}

#[test]
fn a_script_that_keeps_too_much_is_out_of_the_way() {
    let script = "local kept = {} function process() for i = 1, 40 do kept[#kept + 1] = ('x'):rep(16e6) .. #kept end error('x') end";
    let mut bench = bench_with(script, ", BUDGET 20", 1);
    for _ in 0..3 {
        bench.push("in0", &[&[1]]);
    }
    assert!(bench.read("e.state").contains("uses more than 1024 MB of memory"), "{}", bench.read("e.state"));
}
