//! Where the control sockets are. Each network namespace has its own, so that a router that runs elsewhere on the machine does not
//! answer for the one that runs here.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The folder of the sockets that have no path of their own in the settings.
const FOLDER: &str = "/run/brickway";

/// Where the socket of the router in this thread's network namespace is, if nothing else is said:
/// `/run/brickway/NUMBER.sock`, with the number that `stat -Lc %i /proc/self/ns/net` prints.
pub fn default_socket() -> PathBuf {
    Path::new(FOLDER).join(format!("{}.sock", namespace()))
}

/// The socket beside `path` for those who may only show.
pub fn reading_path(path: &Path) -> PathBuf {
    path.with_extension("show.sock")
}

/// Returns the number of this thread's network namespace; 0 if it is not known.
pub fn namespace() -> u64 {
    namespace_of("thread-self").unwrap_or(0)
}

/// The number of a process's network namespace; `None` if the process is gone or not ours to look at.
fn namespace_of(process: &str) -> Option<u64> {
    Some(std::fs::metadata(format!("/proc/{process}/ns/net")).ok()?.ino())
}

/// Makes the folder of the usual sockets, for everybody to look into. Other folders are their owners' affair.
pub(super) fn make_folder(socket: &Path) -> io::Result<()> {
    let folder = Path::new(FOLDER);
    if socket.parent() != Some(folder) || folder.is_dir() {
        return Ok(());
    }
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // The umask may have taken some of the mode.
        other => other.and_then(|()| std::fs::set_permissions(folder, Permissions::from_mode(0o755))),
    }
}

/// Removes the usual sockets of routers that were killed: nobody would, once their namespaces are gone. The caller holds the
/// folder's lock, so that none of them is about to listen.
pub(super) fn sweep(socket: &Path) {
    if socket.parent() != Some(Path::new(FOLDER)) {
        return;
    }
    for file in std::fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let is_socket = file.file_type().is_ok_and(|kind| kind.is_socket());
        let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && UnixStream::connect(file.path()).is_err_and(refuses) {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// Lists the routers at the usual sockets of other network namespaces, each as `NAMESPACE (process NUMBER)`: those that this
/// process may connect to.
pub fn routers_elsewhere() -> Vec<String> {
    let Ok(files) = std::fs::read_dir(FOLDER) else { return Vec::new() };
    let here = namespace_of("thread-self");
    let sockets = files.flatten().filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let number: u64 = name.strip_suffix(".sock")?.parse().ok()?;
        (Some(number) != here).then_some((number, file.path()))
    });
    let mut found: Vec<(u64, PathBuf)> = sockets.collect();
    found.sort();
    let running = found.into_iter().filter_map(|(number, path)| {
        let process = process_at(&UnixStream::connect(path).ok()?)?;
        Some(format!("{} (process {process})", name_of(number)))
    });
    running.collect()
}

/// The process that listens at the other end.
pub(super) fn process_at(stream: &UnixStream) -> Option<i32> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    Some(peer.pid.as_raw_nonzero().get())
}

/// The process at the other end, if it is a router of another network namespace.
pub(super) fn is_elsewhere(stream: &UnixStream) -> Option<i32> {
    let process = process_at(stream)?;
    let theirs = namespace_of(&process.to_string())?;
    (Some(theirs) != namespace_of("thread-self")).then_some(process)
}

/// What `ip netns` calls a namespace, or its number.
fn name_of(number: u64) -> String {
    let files = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let named = files.filter(|file| std::fs::metadata(file.path()).is_ok_and(|known| known.ino() == number));
    let name = named.into_iter().find_map(|file| file.file_name().into_string().ok());
    name.map_or_else(|| format!("network namespace {number}"), |name| format!("network namespace '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_for_showing_is_beside_the_other() {
        assert_eq!(reading_path(Path::new("/run/brickway/7.sock")), Path::new("/run/brickway/7.show.sock"));
        assert_eq!(reading_path(Path::new("/tmp/router")), Path::new("/tmp/router.show.sock"));
    }

    #[test]
    fn sockets_of_routers_that_were_killed_are_removed() {
        if !testbed::is_root() {
            return;
        }
        make_folder(&default_socket()).unwrap();
        // No namespaces have these numbers.
        let path = |number: u32| Path::new(FOLDER).join(format!("{number}.{}.sock", std::process::id()));
        let [dead, living, file] = [1, 2, 3].map(path);
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        let _listener = std::os::unix::net::UnixListener::bind(&living).unwrap();
        std::fs::write(&file, "").unwrap();
        sweep(&default_socket());
        assert_eq!([&dead, &living, &file].map(|path| path.exists()), [false, true, true]);
        std::fs::remove_file(living).unwrap();
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn this_namespace_has_a_number_and_its_own_processes_are_here() {
        let number = namespace_of("self").unwrap();
        assert_eq!(default_socket(), Path::new("/run/brickway").join(format!("{number}.sock")));
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(process_at(&one), Some(std::process::id() as i32));
        assert_eq!(is_elsewhere(&one), None);
    }
}
