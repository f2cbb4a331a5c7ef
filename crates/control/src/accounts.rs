//! Users and groups of this machine by name or number: /etc/passwd and /etc/group.

/// The number of a user.
pub(crate) fn user(name: &str) -> Option<u32> {
    number(name, "/etc/passwd")
}

/// The number of a group.
pub(crate) fn group(name: &str) -> Option<u32> {
    number(name, "/etc/group")
}

/// The name of a user; its number where it has none.
pub(crate) fn user_name(number: u32) -> String {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| number.to_string())
}

/// Both files have the name first and the number third, passwd(5) and group(5).
fn number(name: &str, file: &str) -> Option<u32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let named = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)).flatten()
    });
    named.unwrap_or(name).parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_and_numbers() {
        assert_eq!(
            (super::user("root"), super::group("root"), super::user("7")),
            (Some(0), Some(0), Some(7))
        );
        assert_eq!((super::user_name(0), super::user_name(4_000_000)), ("root".into(), "4000000".into()));
        assert_eq!((super::user("no-such-user"), super::group("no-such-group")), (None, None));
    }
}
