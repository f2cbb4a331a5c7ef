//! =c
//! PortInfo(NAME PORT[/PROTOCOL] [ALIAS...], ...)
//!
//! =s control
//! gives names to TCP and UDP ports
//!
//! =d
//! Each argument is a name, its port, of TCP and of UDP or of one of them (C<web 8080/tcp>), and
//! other names for the port. C<#> begins a comment. The expressions of IPClassifier and IPFilter
//! may use the name, and so may UDPIPEncap and its kin.
//!
//! =e
//!   PortInfo(web 8080/tcp); ... -> IPFilter(allow dst tcp port web) -> ...
//!
//! =a AddressInfo

use graph::lang::{split_arguments, split_words, unquote};
use graph::{Class, ConfigError, Element, Setup};

pub(crate) static CLASS: Class =
    Class { name: "PortInfo", ports: "0/0", manual: graph::manual!("port_info.rs"), make, ..Class::DEFAULT };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let mut problems = Vec::new();
    // A name in capitals is not a keyword here.
    for argument in split_arguments(setup.config()) {
        let words: Vec<String> = split_words(&argument).iter().map(|word| unquote(word)).collect();
        let end = words.iter().position(|word| word.starts_with('#')).unwrap_or(words.len());
        let words = &words[..end];
        if words.is_empty() {
            continue;
        }
        if words.len() < 2 {
            problems.push(format!("expected 'NAME PORT', got '{argument}'"));
        }
        let is_port = |word: &str| {
            let (number, protocol) = word.split_once('/').unwrap_or((word, "tcp"));
            number.parse::<u16>().is_ok() && matches!(protocol, "tcp" | "udp")
        };
        let is_alias = |word: &str| word.starts_with(|c: char| c.is_ascii_alphabetic());
        let has_port = words.iter().skip(1).any(|word| is_port(word));
        let wrong = words.iter().skip(1).filter(|word| !(is_port(word) || (has_port && is_alias(word))));
        problems
            .extend(wrong.map(|word| format!("'{word}' is not a port; expected one such as 80 or 80/tcp")));
    }
    if problems.is_empty() { Ok(Box::new(PortInfo)) } else { Err(problems.into()) }
}

struct PortInfo;

impl Element for PortInfo {}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn names_stand_for_ports() {
        let config =
            "PortInfo(web 8080/tcp); i :: Idle -> f :: IPFilter(allow dst tcp port web, drop all) -> Discard";
        let mut bench = Bench::new(&crate::registry(), config);
        assert!(bench.read("f.program").contains("1f90"), "{}", bench.read("f.program"));
    }

    #[test]
    fn mistakes() {
        let error = configure(&CLASS, "a, b 80/sctp").unwrap_err();
        assert_eq!(
            error,
            ["expected 'NAME PORT', got 'a'", "'80/sctp' is not a port; expected one such as 80 or 80/tcp"]
        );
    }
}
