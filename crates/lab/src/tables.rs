//! Where the real routing tables are: in the project's folder, or where packages have them.

use std::path::{Path, PathBuf};

const OF_PROJECT: &str = "data";
const OF_PACKAGE: &str = "/usr/share/brickway-lab";
const IPV4: &str = "rib-v4.txt.gz";
const IPV6: &str = "rib-v6.txt.gz";

/// Returns the folder of both.
pub(crate) fn folder() -> PathBuf {
    let has_one = |folder: &&str| Path::new(folder).join(IPV4).is_file();
    [OF_PROJECT, OF_PACKAGE].into_iter().find(has_one).unwrap_or(OF_PROJECT).into()
}

/// Returns the real IPv4 table.
pub(crate) fn ipv4() -> PathBuf {
    folder().join(IPV4)
}

/// Returns the real IPv6 table.
pub(crate) fn ipv6() -> PathBuf {
    folder().join(IPV6)
}
