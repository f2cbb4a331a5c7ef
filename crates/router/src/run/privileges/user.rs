//! Whose process a router becomes: the user of the settings, or `brickway` where the machine has that user.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use anyhow::{Context, Result, bail};
use control::accounts::{Account, account, group_name};
use rustix::process::{Gid, Uid, dumpable_behavior, getegid, geteuid, getgroups, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::settings::{Driver, Settings};

/// The user that the packages make.
const USUAL: &str = "brickway";
/// Makes that user where there is no package.
const MAKE: &str = "useradd --system --no-create-home --shell /usr/sbin/nologin brickway";

/// Why a router stays root's.
#[derive(Debug)]
pub(crate) struct StaysRoot {
    pub(crate) reason: String,
    /// What would have it become the user's.
    pub(crate) expected: Option<String>,
}

impl fmt::Display for StaysRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.expected.iter().try_for_each(|expected| write!(f, "; expected {expected}"))
    }
}

impl StaysRoot {
    fn for_reason(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), expected: None }
    }

    fn expecting(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }
}

/// Returns whose process a router of ports becomes, or why it stays root's. It has read `own` files, and reads them again.
///
/// # Errors
///
/// The settings name a user whose process it cannot become.
pub(crate) fn choose(
    settings: &Settings,
    own: impl IntoIterator<Item = PathBuf>,
) -> Result<std::result::Result<Account, StaysRoot>> {
    let wanted = settings.general.user.as_deref();
    let reason = match user_of_machine(wanted.unwrap_or(USUAL)) {
        Ok(account) => match reason_to_stay(settings, own, &account)? {
            None => return Ok(Ok(account)),
            Some(reason) => reason,
        },
        Err(reason) => reason,
    };
    match wanted {
        Some(name) if name != "root" => bail!("user = \"{name}\": {reason}"),
        _ => Ok(Err(reason)),
    }
}

/// Returns whether the machine has the user that the packages make.
pub(super) fn is_made() -> bool {
    account(USUAL).is_some()
}

/// Returns a user of this machine, or what is wrong with the name.
fn user_of_machine(name: &str) -> std::result::Result<Account, StaysRoot> {
    match account(name) {
        Some(account) if account.user == 0 => Err(StaysRoot::for_reason("the settings have user = \"root\"")),
        Some(account) => Ok(account),
        None if name == USUAL => {
            Err(StaysRoot::for_reason(format!("there is no user '{USUAL}'"))
                .expecting(format!("one: {MAKE}")))
        }
        None => Err(StaysRoot::for_reason(format!("there is no user '{name}' in /etc/passwd"))
            .expecting("one, or \"root\"")),
    }
}

/// Returns why this process cannot become the user's.
fn reason_to_stay(
    settings: &Settings,
    own: impl IntoIterator<Item = PathBuf>,
    account: &Account,
) -> Result<Option<StaysRoot>> {
    let Account { name, .. } = account;
    let effective = capabilities(None).context("cannot read its capabilities")?.effective;
    if !effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        let stays = StaysRoot::for_reason("it may not change its user");
        return Ok(Some(stays.expecting("capabilities SETUID and SETGID at the start")));
    }
    if let Some(port) = settings.ports.iter().find(|port| port.driver == Driver::Dpdk) {
        let reason = format!("DPDK opens files of root for port '{}'", port.name);
        return Ok(Some(StaysRoot::for_reason(reason)));
    }
    let writes = |option: &str| option.starts_with("trace=") || option.starts_with("capture=");
    if let Some(port) = settings.ports.iter().find(|port| port.options.split('&').any(writes)) {
        return Ok(Some(StaysRoot::for_reason(format!("port '{}' writes a file", port.name))));
    }
    let of_features = settings.features.all().into_iter().flat_map(|feature| feature.files());
    let mut files = own.into_iter().chain(of_features);
    let tried = with_rights_of(account, || {
        files.find_map(|path| {
            let error = graph::files::open_regular(&path).err()?;
            let closed = closed_folder(&path);
            Some((path, closed, error))
        })
    })?;
    Ok(match tried {
        Ok(None) => None,
        Ok(Some((path, closed, error))) => {
            let path = std::path::absolute(&path).unwrap_or(path);
            let (path, group) = (path.display(), group_name(account.group));
            let reason = format!("user '{name}' cannot open '{path}', which a reload opens: {error}");
            Some(StaysRoot::for_reason(reason).expecting(match closed.as_deref().map(Path::display) {
                Some(folder) => format!(
                    "a file in a folder that it can enter, as in /etc/brickway: chgrp {group} {folder} && chmod g+x {folder}"
                ),
                None => format!(
                    "a file that it can read, as in /etc/brickway: chgrp {group} {path} && chmod g+r {path}"
                ),
            }))
        }
        Err(error) => Some(StaysRoot::for_reason(format!("it cannot become user '{name}': {error}"))),
    })
}

/// Returns the first folder on the way to a file that this thread may not enter.
fn closed_folder(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let may_enter = |folder: &Path| {
        let itself = folder.join(".").metadata();
        !matches!(itself, Err(error) if error.kind() == io::ErrorKind::PermissionDenied)
    };
    let folders: Vec<&Path> = path.ancestors().skip(1).collect();
    folders.into_iter().rev().find(|folder| !may_enter(folder)).map(Path::to_owned)
}

/// Does something with the rights of a user, and has root's again. The inner error: it cannot have these rights here.
fn with_rights_of<R>(account: &Account, act: impl FnOnce() -> R) -> Result<io::Result<R>> {
    const FAILED: &str = "cannot have the rights of root again";
    let (user, group) = (Uid::from_raw(account.user), Gid::from_raw(account.group));
    let (own_user, own_group) = (geteuid(), getegid());
    let groups = getgroups().context("cannot read its groups")?;
    let dumpable = dumpable_behavior().context("cannot find out whether it leaves core dumps")?;
    if let Err(error) = set_thread_groups(&[]) {
        return Ok(Err(error.into()));
    }
    let taken = set_thread_res_gid(None, group, None).and_then(|()| set_thread_res_uid(None, user, None));
    let done = taken.map(|()| act());
    set_thread_res_uid(None, own_user, None).context(FAILED)?;
    set_thread_res_gid(None, own_group, None).context(FAILED)?;
    set_thread_groups(&groups).context(FAILED)?;
    // Another user's rights have made the process one that leaves no core dump.
    set_dumpable_behavior(dumpable).context(FAILED)?;
    Ok(done.map_err(io::Error::from))
}

/// Makes the process the user's, with no other groups, and keeps the capabilities that it is permitted.
pub(super) fn become_user(account: &Account) -> Result<()> {
    let (user, group) = (Uid::from_raw(account.user), Gid::from_raw(account.group));
    let failed = || format!("cannot become user '{}'", account.name);
    rustix::thread::set_keep_capabilities(true).with_context(failed)?;
    set_thread_groups(&[]).with_context(failed)?;
    set_thread_res_gid(group, group, group).with_context(failed)?;
    set_thread_res_uid(user, user, user).with_context(failed)?;
    rustix::thread::set_keep_capabilities(false).with_context(failed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    #[test]
    fn files_are_tried_with_the_rights_of_the_user_and_no_others() {
        // Root alone may take another user's rights.
        if !testbed::is_root() {
            return;
        }
        let folder = std::env::temp_dir().join(format!("brickway-user-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("rules");
        std::fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let nobody = account("65534").unwrap();
        let is_closed = |file: &Path| {
            let look = || (graph::files::open_regular(file).is_err(), closed_folder(file));
            with_rights_of(&nobody, look).unwrap().unwrap()
        };
        let mut closed = Vec::new();
        for (of_folder, of_file) in [(0o755, 0o644), (0o755, 0o600), (0o700, 0o644), (0o755, 0o640)] {
            set(&folder, of_folder);
            set(&file, of_file);
            closed.push(is_closed(&file));
        }
        std::os::unix::fs::chown(&file, None, Some(nobody.group)).unwrap();
        closed.push(is_closed(&file));
        std::fs::remove_dir_all(&folder).unwrap();
        let of_folder = (true, Some(folder));
        assert_eq!(closed, [(false, None), (true, None), of_folder, (true, None), (false, None)]);
        assert!(geteuid().is_root() && getegid().is_root());
    }
}
