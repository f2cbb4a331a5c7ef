//! Users and groups of this machine by name or number: /etc/passwd and /etc/group.

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The name, or the number as a text.
    pub name: String,
    /// The number.
    pub user: u32,
    /// The number of the user's own group.
    pub group: u32,
}

/// Returns a user of /etc/passwd by name or number.
pub fn account(name: &str) -> Option<Account> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    text.lines().find_map(|line| account_in(line, name))
}

/// Returns the user of a line of passwd(5): name, password, number, number of the group.
fn account_in(line: &str, name: &str) -> Option<Account> {
    let fields: Vec<&str> = line.split(':').collect();
    let [known, _, user, group, ..] = fields[..] else { return None };
    let is_meant = known == name || user == name;
    is_meant.then_some(())?;
    Some(Account { name: known.to_owned(), user: user.parse().ok()?, group: group.parse().ok()? })
}

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
    name(number, "/etc/passwd")
}

/// Returns the name of a group; its number where it has none.
pub fn group_name(number: u32) -> String {
    name(number, "/etc/group")
}

/// Both files have the name first and the number third, passwd(5) and group(5).
fn name(number: u32, file: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let named = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| number.to_string())
}

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
        let line = "brickway:x:998:997::/nonexistent:/usr/sbin/nologin";
        let account = super::account_in(line, "brickway").unwrap();
        assert_eq!((account.user, account.group), (998, 997));
        assert_eq!(super::account_in(line, "998"), Some(account));
        for line in ["", "brickway", "brickway:x:998", "brickway:x::997::", "other:x:1:1::"] {
            assert_eq!(super::account_in(line, "brickway"), None, "{line}");
        }
        assert_eq!(super::account("root").map(|root| (root.user, root.group)), Some((0, 0)));
        assert_eq!((super::user("no-such-user"), super::group("no-such-group")), (None, None));
    }
}
