//! Files that settings, configurations and commands name: regular, of bounded length, and where they hold secrets for nobody
//! else to read or replace.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// The most bytes of a file of text: a million rules.
const MOST_BYTES: u64 = 64 << 20;

/// A byte order mark, which some editors write before a text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Opens a regular file. A pipe would be waited for, and a device may never end.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file; expected one"));
    }
    Ok(file)
}

/// Reads the first 64 MiB of a regular file, and a byte more of a longer one.
///
/// # Errors
/// It cannot be read, or is not a regular file.
pub fn read_beginning(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a regular file of at most 64 MiB.
///
/// # Errors
/// It cannot be read, is not a regular file, is longer, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    read_all(open_regular(path)?)
}

/// Reads at most 64 MiB of text, standard input for example.
///
/// # Errors
/// It cannot be read, is longer, or is not UTF-8.
pub fn read_all(input: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    input.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        let problem = format!("longer than {} MiB; expected less", MOST_BYTES >> 20);
        return Err(Error::new(ErrorKind::FileTooLarge, problem));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "not UTF-8; expected a text"))
}

/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;

/// Has the process leave no core dump, in which keys would be found.
pub fn leave_no_core_dump() {
    // The call fails for no process that is its own.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Reads a regular file of at most 64 KiB that holds a secret. Returns what describes the file too. From now on the process leaves no
/// core dump, in which the secret would be found.
///
/// # Errors
/// It cannot be read, is not a regular file, is longer, or is not UTF-8; or others than root and the user of this process can read
/// or replace it.
pub fn read_secret(path: &Path) -> Result<(String, Metadata)> {
    const MOST: u64 = 64 << 10;
    let file = open_regular(path)?;
    let metadata = file.metadata()?;
    if metadata.mode() & OTHERS != 0 {
        let mode = metadata.mode() & 0o7777;
        let problem = format!(
            "its mode {mode:04o} lets other users in; expected mode 0600: chmod 0600 {}",
            path.display()
        );
        return Err(Error::new(ErrorKind::PermissionDenied, problem));
    }
    let user = rustix::process::geteuid().as_raw();
    if ![0, user].contains(&metadata.uid()) {
        let problem = format!(
            "it belongs to user {}; expected a file of user {user}, who runs this program, or of root",
            metadata.uid()
        );
        return Err(Error::new(ErrorKind::PermissionDenied, problem));
    }
    let mut text = String::with_capacity(metadata.len().min(MOST) as usize + 1);
    file.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(Error::new(ErrorKind::FileTooLarge, "longer than 64 KiB; expected a secret"));
    }
    leave_no_core_dump();
    Ok((text, metadata))
}

/// Returns whether bytes are surely not a key: there are none, or each is as far from the one before as the next is. Zeros are so,
/// and keys of examples, which count.
pub fn is_no_key(bytes: &[u8]) -> bool {
    let mut steps = bytes.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let first = steps.next();
    bytes.len() < 2 || steps.all(|step| Some(step) == first)
}

/// Words that stand in examples, and with which people begin.
const EXAMPLES: [&str; 8] =
    ["changeme", "change-me", "change_me", "example", "password", "secret", "letmein", "default"];

/// Returns whether a word is surely not a secret: one of an example, with what stands before or behind it, or of few different
/// characters.
pub fn is_no_secret(word: &str) -> bool {
    let small = word.to_ascii_lowercase();
    let kinds = small.chars().collect::<std::collections::BTreeSet<char>>().len();
    let is_example = EXAMPLES.iter().any(|example| {
        let rest: usize = small.split(example).map(str::len).sum();
        small.contains(example) && rest <= 8
    });
    kinds < 4 || is_example || is_no_key(word.as_bytes()) || "0123456789abcdef".repeat(8).contains(&small)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_byte_order_mark_before_a_text_is_skipped() {
        assert_eq!(read_all("\u{feff}10 permit\n".as_bytes()).unwrap(), "10 permit\n");
        assert_eq!(read_all("1\u{feff}0".as_bytes()).unwrap(), "1\u{feff}0");
    }

    #[test]
    fn secrets_are_their_owner_s_and_no_examples() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("brickway-secret-{}", std::process::id()));
        std::fs::write(&path, "a secret\n").unwrap();
        let read = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read_secret(&path).map(|(text, _)| text).map_err(|error| error.to_string())
        };
        assert_eq!([read(0o600), read(0o400)], [Ok("a secret\n".to_owned()), Ok("a secret\n".to_owned())]);
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        for mode in [0o640, 0o604, 0o620, 0o644, 0o777] {
            let error = read(mode).unwrap_err();
            assert!(
                error.contains(&format!("its mode {mode:04o}")) && error.contains("chmod 0600"),
                "{error}"
            );
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let error = read(0o600).unwrap_err();
            assert!(error.contains("it belongs to user 65534; expected a file of user 0"), "{error}");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        std::fs::write(&path, "x".repeat((64 << 10) + 1)).unwrap();
        assert!(read(0o600).unwrap_err().contains("longer than 64 KiB"));
        std::fs::remove_file(&path).unwrap();
        assert!(read_secret(Path::new("/dev/zero")).is_err());

        for key in [&[][..], &[7], &[0; 32], &[0xaa; 16], &[0, 1, 2, 3, 4], &[9, 8, 7, 6], &[254, 255, 0, 1]]
        {
            assert!(is_no_key(key), "{key:?}");
        }
        assert!(!is_no_key(&[3, 1, 4, 1, 5, 9, 2, 6]));
        for word in [
            "",
            "changeme",
            "ChangeMe12345678",
            "0000000000000000",
            "0123456789abcdef",
            "abababababababab",
            "passwordpassword",
            "my-secret-secret",
        ] {
            assert!(is_no_secret(word), "{word}");
        }
        for word in
            ["correct-horse-battery", "Zk3vQ9xw7Lm2Rt5B", "0f3a9c21d47be850", "sesame-opens-the-secret-door"]
        {
            assert!(!is_no_secret(word), "{word}");
        }
    }

    use super::*;

    #[test]
    fn files_are_read_and_devices_pipes_and_what_does_not_end_are_refused() {
        let folder = std::env::temp_dir().join(format!("brickway-files-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let [file, pipe, long] = ["file", "pipe", "long"].map(|name| folder.join(name));
        std::fs::write(&file, "text").unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        File::create(&long).unwrap().set_len(MOST_BYTES + 1).unwrap();
        let results = [&*file, &*pipe, &*long, Path::new("/dev/zero"), Path::new("/")].map(read_text);
        std::fs::remove_dir_all(&folder).unwrap();
        let texts = results.map(|result| result.unwrap_or_else(|error| error.to_string()));
        let irregular = "not a regular file; expected one";
        assert_eq!(texts, ["text", irregular, "longer than 64 MiB; expected less", irregular, irregular]);
    }
}
