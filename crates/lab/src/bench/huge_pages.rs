//! Huge pages for DPDK: found free, or reserved for as long as the bench runs.
//!
//! DPDK keeps its tables and frames on pages of 2 MB that the kernel set aside before. Without them a random lookup in its tables
//! costs a page walk, and the comparison would be unfair (our tables ask for transparent huge pages, which need no
//! reservation). On most machines none are reserved; root can change that while the machine runs, if memory is not too
//! fragmented, in the `nr_hugepages` of their size (Linux 2.6.29).

use std::fs;

const PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// The right to use so many free pages; the number of pages is as before once this is dropped.
#[derive(Debug)]
pub(super) struct HugePages {
    /// How many pages `nr_hugepages` was raised by. So many go, and not "back to the old number", since others may have
    /// changed it meanwhile.
    added: u64,
}

fn read(name: &str) -> Result<u64, String> {
    let path = format!("{PAGES}/{name}");
    let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{path} holds '{}', not a number", text.trim()))
}

/// Free pages but for those that the kernel has promised to mappings that were not touched yet.
fn unpromised() -> Result<u64, String> {
    Ok(read("free_hugepages")?.saturating_sub(read("resv_hugepages")?))
}

/// What [`set_total`] sets: not those beyond it that a process which ends still has, and that go with it.
fn total() -> Result<u64, String> {
    Ok(read("nr_hugepages")?.saturating_sub(read("surplus_hugepages")?))
}

fn set_total(pages: u64) -> Result<(), String> {
    let path = format!("{PAGES}/nr_hugepages");
    fs::write(&path, pages.to_string()).map_err(|error| format!("cannot write {path}: {error}"))
}

impl HugePages {
    /// Makes sure that `megabytes` of huge pages are free, or says in a few words why they are not.
    pub(super) fn reserve(megabytes: u64) -> Result<Self, String> {
        let wanted = megabytes.div_ceil(2);
        let free = unpromised()?;
        if free >= wanted {
            return Ok(Self { added: 0 });
        }
        let before = total()?;
        set_total(before + wanted - free)?;
        // The kernel adds as many as it finds; from here on they go again whatever happens.
        let pages = Self { added: total()?.saturating_sub(before) };
        let free = unpromised()?;
        if free < wanted {
            return Err(format!("the kernel found {} of {megabytes} MB of huge pages", free * 2));
        }
        Ok(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if self.added == 0 {
            return;
        }
        let put_back = total().and_then(|total| set_total(total.saturating_sub(self.added)));
        if let Err(problem) = put_back {
            graph::note!("brickway-lab: {problem}; {} huge pages too many stay reserved", self.added);
        }
    }
}
