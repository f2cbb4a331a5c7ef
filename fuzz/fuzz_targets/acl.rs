//! Any text as an access list: rules or an error, never a panic; and a list prints itself as what is read
//! as the same list.
#![no_main]

use std::cell::RefCell;

use graph::testing::Bench;
use libfuzzer_sys::fuzz_target;

const CONFIG: &str = r#"in :: TestInput -> acl :: ACL(permit any any any, DEFAULT deny, INPUTS "eth0 1, eth1.7 2") -> out :: TestOutput"#;

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::new(&elements::registry(), CONFIG));
}

fuzz_target!(|text: &str| {
    BENCH.with_borrow_mut(|bench| {
        let before = bench.read("acl.rules");
        if let Err(mistakes) = bench.write("acl.set", text) {
            assert!(!mistakes.is_empty());
            assert_eq!(bench.read("acl.rules"), before, "a list with mistakes changes nothing");
            return;
        }
        let rules = bench.read("acl.rules");
        let count = rules.lines().count().to_string();
        assert_eq!(bench.read("acl.count"), count);
        bench.write("acl.set", &rules).unwrap_or_else(|mistakes| panic!("{rules}{mistakes}"));
        assert_eq!(bench.read("acl.rules"), rules);
        // Rules one by one are what they are together.
        bench.write("acl.set", "").expect("an empty list");
        for rule in rules.lines() {
            bench.write("acl.add", rule).unwrap_or_else(|mistake| panic!("{rule}: {mistake}"));
        }
        assert_eq!(bench.read("acl.rules"), rules);
        // A list judges whatever comes.
        bench.push("in", &[text.as_bytes()]);
        bench.taken("out");
    });
});
