//! The key that the nodes of a cluster share: a file on each node, never in the store.
//!
//! The file has one or two lines of 64 hexadecimal digits. A node sends with the key of the first line and accepts the keys of all
//! lines, so a key changes without a flap: add the new key as the second line on every node, then swap the lines on every node, then
//! remove the old line. Each use derives a key of its own from the file's, by [`Key::derive`].

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::hkdf;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// Bytes of a key.
const BYTES: usize = 32;

/// Most keys in a file: the one in use, and its successor or predecessor.
const MOST_KEYS: usize = 2;

/// A key of a cluster. Its `Debug` text hides it.
#[derive(Clone)]
pub struct Key([u8; BYTES]);

impl Key {
    /// Makes a key from the system's random numbers.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn fresh() -> io::Result<Key> {
        random().map(Key)
    }

    /// Reads a key from 64 hexadecimal digits; `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Key> {
        let digits = text.as_bytes();
        if digits.len() != 2 * BYTES {
            return None;
        }
        let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        let mut key = [0; BYTES];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Key(key))
    }

    /// Returns the key as a key file has it.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Derives the key of one purpose (HKDF-Expand with SHA-256, RFC 5869). Keys of different purposes say nothing of each other.
    pub fn derive(&self, purpose: &str) -> [u8; BYTES] {
        struct Length;
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                BYTES
            }
        }
        let mut derived = [0; BYTES];
        let key = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &self.0);
        let info = [b"brickway ".as_slice(), purpose.as_bytes()];
        let filled = key.expand(&info, Length).and_then(|output| output.fill(&mut derived));
        filled.expect("one block is less than HKDF's 255");
        derived
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

/// Returns random bytes that nobody can guess.
///
/// # Errors
///
/// The system has no random numbers.
pub(crate) fn random() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(bytes)
}

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It is not there, or may not be read.
    #[error("key file '{}': {error}; run 'brickway cluster key' to make a key", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// What the system reports.
        error: io::Error,
    },
    /// It is not a file that this user alone can read and replace.
    #[error("key file '{}': {error}", path.display())]
    Refused {
        /// Where it is.
        path: PathBuf,
        /// Why, and what was expected.
        error: io::Error,
    },
    /// It holds something else.
    #[error(
        "key file '{}': {problem}; expected one or two lines of 64 hexadecimal digits, as 'brickway cluster key' prints",
        path.display()
    )]
    Malformed {
        /// Where it is.
        path: PathBuf,
        /// What is wrong, without the content.
        problem: String,
    },
}

/// What changes when somebody writes the file: device, inode, size, time of the last change in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

/// A key file that was read.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
    keys: Vec<Key>,
    stamp: Stamp,
}

impl KeyFile {
    /// Reads a key file.
    ///
    /// # Errors
    ///
    /// [`KeyFileError`]: the file is not there, other users can read or replace it, or it does not hold keys.
    pub fn load(path: &Path) -> Result<KeyFile, KeyFileError> {
        let (text, metadata) = graph::files::read_secret(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => KeyFileError::Unreadable { path: path.to_owned(), error },
            _ => KeyFileError::Refused { path: path.to_owned(), error },
        })?;
        let keys =
            keys_of(&text).map_err(|problem| KeyFileError::Malformed { path: path.to_owned(), problem })?;
        Ok(KeyFile { path: path.to_owned(), keys, stamp: stamp(&metadata) })
    }

    /// Makes a file with a fresh key that only its owner can read.
    ///
    /// # Errors
    ///
    /// There is a file already, or none can be made.
    pub fn create(path: &Path) -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{}", Key::fresh()?.to_hex())
    }

    /// Returns the keys: the first is for sending, all are accepted. There is at least one.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Returns the key for sending.
    pub fn first(&self) -> &Key {
        &self.keys[0]
    }

    /// Returns where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again if it was written since. Returns whether it was.
    ///
    /// # Errors
    ///
    /// [`KeyFileError`]; the keys are those of before then.
    pub fn refresh(&mut self) -> Result<bool, KeyFileError> {
        let metadata = std::fs::metadata(&self.path)
            .map_err(|error| KeyFileError::Unreadable { path: self.path.clone(), error })?;
        if stamp(&metadata) == self.stamp {
            return Ok(false);
        }
        *self = KeyFile::load(&self.path)?;
        Ok(true)
    }
}

fn stamp(metadata: &std::fs::Metadata) -> Stamp {
    (metadata.dev(), metadata.ino(), metadata.size(), metadata.ctime(), metadata.ctime_nsec())
}

/// The keys of a file's text, or what is wrong with it.
fn keys_of(text: &str) -> Result<Vec<Key>, String> {
    let lines = text.trim_end().lines().count();
    if lines == 0 || lines > MOST_KEYS {
        return Err(format!("{lines} lines"));
    }
    let key = |(number, line): (usize, &str)| {
        let key = Key::from_hex(line.trim()).ok_or_else(|| format!("line {number} is not a key"))?;
        match graph::files::is_no_key(&key.0) {
            true => Err(format!("line {number} is an example, which everybody knows")),
            false => Ok(key),
        }
    };
    (1..).zip(text.trim_end().lines()).map(key).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::store::testing::temporary_directory;

    struct TestFile(PathBuf);

    impl TestFile {
        fn new(text: &str) -> TestFile {
            let file = TestFile(temporary_directory());
            file.write(text, 0o600);
            file
        }

        fn path(&self) -> PathBuf {
            self.0.join("key")
        }

        fn write(&self, text: &str, mode: u32) {
            // As an editor does it: another file in its place.
            let draft = self.0.join("draft");
            std::fs::write(&draft, text).unwrap();
            std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(mode)).unwrap();
            std::fs::rename(&draft, self.path()).unwrap();
        }

        fn load(&self) -> Result<KeyFile, KeyFileError> {
            KeyFile::load(&self.path())
        }
    }

    impl Drop for TestFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_of_two_keys_sends_with_the_first_and_is_read_again_when_it_was_written() {
        let [old, new] = [Key::fresh().unwrap().to_hex(), Key::fresh().unwrap().to_hex()];
        let file = TestFile::new(&format!("{old}\n{new}\n"));
        let mut keys = file.load().unwrap();
        assert_eq!(keys.keys().iter().map(Key::to_hex).collect::<Vec<_>>(), [old.clone(), new.clone()]);
        assert!(!keys.refresh().unwrap());
        file.write(&format!("{new}\n{old}\n"), 0o600);
        assert!(keys.refresh().unwrap());
        assert_eq!(keys.first().to_hex(), new);
        file.write("nothing", 0o600);
        assert!(keys.refresh().is_err());
        assert_eq!(keys.first().to_hex(), new);
    }

    #[test]
    fn a_file_that_others_can_read_or_that_holds_something_else_is_refused_without_its_content() {
        let key = Key::fresh().unwrap().to_hex();
        for mode in [0o640, 0o604, 0o620] {
            let file = TestFile::new("");
            file.write(&key, mode);
            let error = file.load().unwrap_err().to_string();
            assert!(error.contains(&format!("mode {mode:04o}")) && error.contains("chmod 0600"), "{error}");
        }
        let lines = format!("{key}\n{key}\n{key}\n");
        for text in ["", "\n", &key[1..], &format!("{key}0"), &key.replace(&key[..1], "g"), &lines] {
            let error = TestFile::new(text).load().unwrap_err().to_string();
            assert!(error.contains("expected one or two lines of 64"), "{text}: {error}");
            assert!(!error.contains(&key[8..]), "{error}");
        }
        // Nobody writes to the pipe.
        let pipe = temporary_directory().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        assert!(KeyFile::load(&pipe).unwrap_err().to_string().contains("not a regular file"));
        let absent = KeyFile::load(Path::new("/nowhere/key")).unwrap_err().to_string();
        assert!(absent.contains("run 'brickway cluster key'"), "{absent}");
    }

    #[test]
    fn a_file_that_is_made_can_be_loaded_and_is_never_overwritten() {
        let path = temporary_directory().join("key");
        KeyFile::create(&path).unwrap();
        let made = KeyFile::load(&path).unwrap().first().to_hex();
        assert_eq!(KeyFile::create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(KeyFile::load(&path).unwrap().first().to_hex(), made);
    }

    #[test]
    fn each_purpose_has_a_key_of_its_own_and_no_text_shows_the_key() {
        let key = Key::from_hex(&"0b".repeat(32)).unwrap();
        assert_eq!(key.derive("store"), key.derive("store"));
        assert_ne!(key.derive("store"), key.derive("fabric"));
        assert_ne!(key.derive("store"), Key::fresh().unwrap().derive("store"));
        assert_eq!(format!("{key:?}"), "Key(hidden)");
    }
}
