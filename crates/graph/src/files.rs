//! Files of text that settings and configurations name.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The most bytes of a file of text: a million rules.
const MOST_BYTES: u64 = 64 << 20;

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
    let bytes = read_beginning(path)?;
    if bytes.len() as u64 > MOST_BYTES {
        let problem = format!("longer than {} MiB; expected less", MOST_BYTES >> 20);
        return Err(Error::new(ErrorKind::FileTooLarge, problem));
    }
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "not UTF-8; expected a text"))
}

#[cfg(test)]
mod tests {
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
