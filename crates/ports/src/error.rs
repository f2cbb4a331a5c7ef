//! Why a port could not be opened or used, and what to do about it.

use std::io;
use std::path::PathBuf;

/// What went wrong with a port. Every message names the port and what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The spec does not follow the syntax.
    #[error("port `{spec}`: {problem}")]
    BadSpec {
        /// The spec as written.
        spec: String,
        /// What is wrong with it and what was expected.
        problem: String,
    },
    /// No driver has this name.
    #[error("port `{spec}`: there is no driver `{driver}`; {hint}")]
    UnknownDriver {
        /// The spec as written.
        spec: String,
        /// The unknown driver.
        driver: String,
        /// The nearest one, or all of them.
        hint: String,
    },
    /// The driver does not have this option.
    #[error("port `{spec}`: driver `{driver}` has no option `{option}`; {hint}")]
    UnknownOption {
        /// The spec as written.
        spec: String,
        /// The driver.
        driver: &'static str,
        /// The unknown option.
        option: String,
        /// The nearest one, or all of them.
        hint: String,
    },
    /// An option has a value that it cannot have.
    #[error("port `{spec}`: `{option}={value}` is wrong: {expected} is expected")]
    BadValue {
        /// The spec as written.
        spec: String,
        /// The option.
        option: String,
        /// Its value.
        value: String,
        /// What was expected.
        expected: String,
    },
    /// Linux has no interface of this name, in this network namespace.
    #[error("there is no interface `{name}`; {hint}")]
    NoSuchInterface {
        /// The name asked for.
        name: String,
        /// The names there are, or what was probably meant.
        hint: String,
    },
    /// The interface is not Ethernet.
    #[error(
        "interface `{name}` is not Ethernet (its link type is {link_type}); a port needs an Ethernet interface"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// The kernel's number of the link type (ARPHRD_*).
        link_type: u16,
    },
    /// The interface is administratively down.
    #[error("interface `{name}` is down; bring it up with `ip link set {name} up`")]
    InterfaceDown {
        /// The interface.
        name: String,
    },
    /// The process may not do this.
    #[error("port `{port}`: not permitted to {what}; run as root, or give the program {capability}")]
    NotPermitted {
        /// The port.
        port: String,
        /// What was tried.
        what: &'static str,
        /// The capability that is missing.
        capability: &'static str,
    },
    /// Another port of this program, or another process, has it.
    #[error("port `{port}` is already in use by {user}; stop it or use another port")]
    InUse {
        /// The port.
        port: String,
        /// Who has it.
        user: String,
    },
    /// The kernel lacks what the driver needs.
    #[error("port `{port}`: {problem}")]
    Unsupported {
        /// The port.
        port: String,
        /// What is missing and how to get it.
        problem: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} `{}`: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// `read` or `write`.
        action: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The port has fewer queues.
    #[error(
        "port `{port}` has no {direction} queue {queue}: it has {count}, counted from 0; open it with more queues"
    )]
    NoSuchQueue {
        /// The port.
        port: String,
        /// `receive` or `transmit`.
        direction: &'static str,
        /// The queue asked for.
        queue: usize,
        /// How many there are.
        count: usize,
    },
    /// Somebody owns the queue already.
    #[error("{direction} queue {queue} of port `{port}` is taken: a queue has one owner")]
    QueueTaken {
        /// The port.
        port: String,
        /// `receive` or `transmit`.
        direction: &'static str,
        /// The queue asked for.
        queue: usize,
    },
    /// The process or the system has run out of something.
    #[error("port `{port}`: {action} failed: {shortage}")]
    Shortage {
        /// The port.
        port: String,
        /// What was tried.
        action: &'static str,
        /// What there is too little of, and what to do.
        shortage: String,
    },
    /// A system call failed in a way that has no better name here.
    #[error("port `{port}`: {action} failed: {source}")]
    System {
        /// The port.
        port: String,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl PortError {
    /// A failed system call, with the cases that have their own advice.
    pub(crate) fn system(port: &str, action: &'static str, source: impl Into<io::Error>) -> Self {
        let (source, port) = (source.into(), port.to_owned());
        if let Some(shortage) = shortage(source.raw_os_error()) {
            return Self::Shortage { port, action, shortage };
        }
        match source.kind() {
            io::ErrorKind::PermissionDenied => {
                Self::NotPermitted { port, what: action, capability: "CAP_NET_RAW and CAP_NET_ADMIN" }
            }
            _ => Self::System { port, action, source },
        }
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(path: impl Into<PathBuf>, action: &'static str, problem: impl ToString) -> Self {
        Self::File { path: path.into(), action, problem: problem.to_string() }
    }
}

/// Returns what the process or the system has run out of, if this is what an error number says, and what to do.
pub(crate) fn shortage(errno: Option<i32>) -> Option<String> {
    match errno? {
        libc::EMFILE => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            let limit = limit.map_or_else(|| "its limit of".to_owned(), |limit| format!("the {limit}"));
            Some(format!(
                "the process has {limit} open files that it may have; raise RLIMIT_NOFILE with `ulimit -n`, or LimitNOFILE= of \
                 its unit"
            ))
        }
        libc::ENFILE => Some("the system has no open files left; raise `sysctl fs.file-max`".to_owned()),
        libc::ENOMEM => Some(
            "there is no memory for it, or the process may lock no more; see `free`, and raise RLIMIT_MEMLOCK with `ulimit -l`"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Returns the same for an error that hides its number: whether the process can open one more file tells.
pub(crate) fn missing_resource(errno: Option<i32>) -> Option<String> {
    let of_files = || {
        let file = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        file.err().and_then(|error| shortage(Some(error.raw_os_error())))
    };
    shortage(errno).or_else(of_files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_too_little_of_is_named() {
        let text = |errno| {
            PortError::system("eth1", "making a socket", io::Error::from_raw_os_error(errno)).to_string()
        };
        assert!(
            text(libc::EMFILE).contains("open files that it may have; raise RLIMIT_NOFILE"),
            "{}",
            text(libc::EMFILE)
        );
        assert!(text(libc::ENFILE).contains("fs.file-max"));
        assert!(text(libc::ENOMEM).contains("RLIMIT_MEMLOCK"));
        assert!(text(libc::EPERM).contains("run as root"));
        assert!(text(libc::EIO).contains("making a socket failed: "));
        // There are files left here.
        assert_eq!(missing_resource(Some(libc::EINVAL)), None);
    }
}
