//! Any bytes as a routing table, of either family and as what `ip route` prints: rows or errors, never a panic; and what
//! is read prints itself as what is read again.
#![no_main]

use fib::read::{self, AnyTable, IpRoute, IpRoutes, Table};
use libfuzzer_sys::fuzz_target;
use packet::Family;

fn rows<A: Family>(table: &Table<A>, bytes: &[u8]) {
    assert!((table.rows.len() as u64 + table.bad) as usize <= bytes.len() + 1);
    let text: String = table.rows.iter().map(|row| format!("{} {}\n", row.prefix, row.origin)).collect();
    let again = read::read::<A>(text.as_bytes());
    assert_eq!((again.bad, again.rows), (0, table.rows.clone()));
    for error in &table.errors {
        assert!(error.to_string().len() < 1000);
    }
}

fuzz_target!(|bytes: &[u8]| {
    rows(&read::read::<u32>(bytes), bytes);
    rows(&read::read::<u128>(bytes), bytes);
    match read::read_any(bytes) {
        AnyTable::Ipv4(table) => rows(&table, bytes),
        AnyTable::Ipv6(table) => rows(&table, bytes),
    }
    let mut routes: Vec<IpRoute> = Vec::new();
    for route in IpRoutes::new(bytes) {
        match route {
            Ok((_, route)) => routes.push(route),
            Err(error) => assert!(error.to_string().len() < 1000),
        }
    }
    let text: String = routes.iter().map(|route| format!("{route}\n")).collect();
    let again: Vec<IpRoute> = IpRoutes::new(text.as_bytes())
        .map(|route| route.expect("a route prints itself as a route").1)
        .collect();
    assert_eq!(again, routes);
});
