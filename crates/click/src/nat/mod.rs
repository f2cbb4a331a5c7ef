//! Translation of addresses and ports (NAT).
//!
//! | file | what lives there |
//! | --- | --- |
//! | `ip_rewriter` | the classes of rewriters |
//! | `rewriter` | the element that they all are; `kind` is in what they differ, `options` their keywords |
//! | `group` | what rewriters share, with each other and with those who look into their tables |
//! | `table`, `flow`, `hosts` | the table of mappings, what a mapping is, and how many each host has |
//! | `rule`, `pattern`, `mapper` | what becomes of new flows |
//! | `translate`, `sequence` | what is done to packets |
//! | `icmp_rewriter`, `ftp_port_mapper` | what goes with translated flows |
//! | the others | one element each |

mod flow;
mod ftp_port_mapper;
mod group;
mod hosts;
mod icmp_rewriter;
mod ip_rewriter;
mod ip_rewriter_patterns;
mod kind;
mod mapper;
mod options;
mod pattern;
mod rewriter;
mod round_robin_ip_mapper;
mod rule;
mod sequence;
mod source_ip_hash_mapper;
mod table;
#[cfg(test)]
mod tests;
mod translate;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &ftp_port_mapper::CLASS,
    &ip_rewriter::PING,
    &icmp_rewriter::CLASS,
    &ip_rewriter::PAIR,
    &ip_rewriter::ADDRESS,
    &ip_rewriter::CLASS,
    &ip_rewriter_patterns::CLASS,
    &round_robin_ip_mapper::CLASS,
    &source_ip_hash_mapper::CLASS,
    &ip_rewriter::TCP,
    &ip_rewriter::UDP,
];
