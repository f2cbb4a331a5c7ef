//! Ports: what the file and the command line say of them.

use ports::{Links, Spec};

use super::Settings;
use super::options::{About, Problem, options, words};
use crate::features::vlan;

words! {
    /// What carries a port's packets.
    Driver {
        /// In the kernel where that is the faster, else AF_XDP sockets.
        Auto "auto",
        /// A BPF program forwards in the kernel, and AF_XDP sockets get the rest.
        Xdp "xdp",
        /// AF_XDP sockets get all packets.
        AfXdp "af_xdp",
        /// Memory-mapped packet rings.
        AfPacket "af_packet",
        /// A device of DPDK.
        Dpdk "dpdk",
        /// A TAP device: Linux has its other end.
        Tap "tap",
        /// Another port: this one is a VLAN of it.
        Vlan "vlan",
    }
}

words! {
    /// How Linux sees a port.
    Host {
        /// As the interface that it is.
        Interface "interface",
        /// As a TAP interface with the port's link address, made for it.
        Tap "tap",
        /// Not at all: nothing goes up to Linux by this port.
        None "none",
    }
}

options! {
    /// A port: an interface of Linux that the router takes transit packets from. Write one section for each.
    PortSettings "port" {
        /// The name of the interface. Ports of DPDK and TAP ports: the name that the interface in Linux gets. A VLAN (802.1Q) of
        /// another port: that one's name, a dot and its number, as "eth1.100". Without such an interface in Linux the router makes
        /// one.
        #[example = "\"eth1\""]
        name: String = String::new(),
        /// The driver. "xdp": a BPF program forwards plain transit in the kernel, by the router's tables, and hands
        /// the rest to the router (Linux 6.6 or newer). "af_xdp": it hands over everything (Linux 5.9 or newer). "auto": as
        /// "xdp" where the card's driver would copy what it hands over, else as "af_xdp". On a veth the program of "auto" runs in
        /// the kernel's stack, so that hosts at its other end keep their segmentation. "af_packet": any interface, slower
        /// (Linux 6.6 or newer). "dpdk": a whole device, in a build with it. "tap": a TAP interface. "vlan": the driver of the
        /// port below. It is the default for a port with a VLAN's name, and has no other options.
        #[example = "\"auto\""]
        driver: Driver = Driver::Auto,
        /// The device that the driver opens, if it is not the interface of this name: "0000:03:00.0" with DPDK.
        #[example = "\"eth1\""]
        device: Option<String> = None,
        /// Options of the driver, as behind the ? in a port's spec: "queues=4&ring=2048".
        #[example = "\"ring=1024\""]
        options: String = String::new(),
        /// The port in Linux. "interface": the interface that it is, on which addresses, neighbours and sessions of
        /// routing daemons stay. "tap": a TAP interface made for it, the default for "dpdk" and "tap". "none": Linux does not
        /// see the port.
        #[example = "\"interface\""]
        host: Host = Host::Interface,
    }
}

impl About for PortSettings {
    fn problem(&self) -> Option<Problem> {
        let is_interface = |name: &str| {
            let is_long = name.len() > 15 && Links::ask().is_ok_and(|links| links.named(name).is_some());
            ((1..=15).contains(&name.len()) || is_long)
                && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
        };
        if !is_interface(&self.name) {
            let right = "expected 1 to 15 characters without '/', ':' and blanks, or an alternative name of an interface";
            return Some((
                "name",
                format!("'{}' cannot be an interface's name", self.name),
                right.to_owned(),
            ));
        }
        if self.driver == Driver::Vlan {
            // What can be wrong with it depends on the other ports.
            return None;
        }
        if self.host == Host::Interface && matches!(self.driver, Driver::Dpdk | Driver::Tap) {
            let message = format!("a port of {} is not an interface of Linux", self.driver.word());
            return Some(("host", message, "expected host = \"tap\" or \"none\"".to_owned()));
        }
        if self.driver == Driver::Tap && self.host == Host::Tap && self.device.is_none() {
            let message =
                format!("the TAP port '{0}' and the interface that stands for it are both '{0}'", self.name);
            return Some((
                "name",
                message,
                "expected another name than its device, as lan=tap:vm0".to_owned(),
            ));
        }
        let key = if self.options.is_empty() { "device" } else { "options" };
        Spec::parse(&self.spec()).err().map(|error| (key, error.to_string(), String::new()))
    }
}

impl Driver {
    /// Returns whether packets come by an XDP program.
    pub(crate) fn is_xdp(self) -> bool {
        matches!(self, Self::Auto | Self::Xdp | Self::AfXdp)
    }
}

impl PortSettings {
    /// The interface of this name, in the usual way.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// How Linux sees a port of this driver if nothing else is said.
    pub(super) fn usual_host(driver: Driver) -> Host {
        match driver {
            Driver::Dpdk | Driver::Tap => Host::Tap,
            Driver::Auto | Driver::Xdp | Driver::AfXdp | Driver::AfPacket | Driver::Vlan => Host::Interface,
        }
    }

    /// Chooses, under `auto`, what fits the kind of the interface.
    ///
    /// The program of a veth runs in the kernel's stack: in tc, which sees frames whole. In the driver it would turn the segmentation of
    /// the veth's other end off, and copy each packet of a host there. To a bridge and the like a program of XDP would see no VLAN tags:
    /// packet sockets do.
    pub(crate) fn fit_kind(&mut self) {
        if self.driver != Driver::Auto || self.host != Host::Interface {
            return;
        }
        let links = Links::ask().ok();
        // Of an interface that was renamed since it was opened, its name now.
        let name = ports::kernel_name(&self.name);
        let kind = links.and_then(|links| Some(links.named(&name)?.kind.clone())).unwrap_or_default();
        if ports::lacks_vlan_tags(&kind) && self.options.is_empty() {
            self.driver = Driver::AfPacket;
            return;
        }
        let is_chosen = self.options.split('&').any(|option| option.starts_with("mode="));
        if !is_chosen && kind == "veth" {
            let separator = if self.options.is_empty() { "" } else { "&" };
            self.options = format!("{}{separator}mode=tc", self.options);
        }
    }

    /// Takes over what was chosen for the same port of a running router: its interface may be away just now.
    pub(crate) fn fit_as(&mut self, running: &[Self]) {
        let unfitted = |port: &Self| {
            let options = port.options.split('&').filter(|option| *option != "mode=tc");
            let mut port = port.clone();
            port.options = options.collect::<Vec<_>>().join("&");
            port
        };
        let packets = |mut port: Self| {
            if port.driver == Driver::Auto && port.options.is_empty() {
                port.driver = Driver::AfPacket;
            }
            port
        };
        let own = unfitted(self);
        let is_same = |known: &&Self| {
            let known = unfitted(known);
            known == own || known == packets(own.clone())
        };
        match running.iter().find(is_same) {
            Some(known) => known.clone_into(self),
            None => self.fit_kind(),
        }
    }

    /// The spec that opens it: `af_xdp:eth1?steer=transit&ring=2048`. With Linux's own interface the driver
    /// leaves to Linux what is not transit.
    pub(crate) fn spec(&self) -> String {
        if self.driver == Driver::Vlan {
            return format!("vlan:{}", self.name);
        }
        let mut options = Vec::new();
        if self.host == Host::Interface && !self.options.split('&').any(|option| option.starts_with("steer="))
        {
            options.push("steer=transit");
        }
        // What the kernel forwards it would copy out of a card's frames first, and virtio_net sends nothing of it.
        if self.driver == Driver::Xdp && !self.options.split('&').any(|option| option.starts_with("zerocopy"))
        {
            options.push("zerocopy=no");
        }
        // Sockets get all packets there.
        if self.driver == Driver::AfXdp && !self.options.split('&').any(|option| option.starts_with("mode="))
        {
            options.push("mode=xdp");
        }
        options.extend(Some(self.options.as_str()).filter(|options| !options.is_empty()));
        let question = if options.is_empty() { "" } else { "?" };
        let device = self.device.as_deref().unwrap_or(&self.name);
        let driver = if self.driver.is_xdp() { Driver::AfXdp } else { self.driver };
        format!("{}:{device}{question}{}", driver.word(), options.join("&"))
    }
}

impl Settings {
    /// Settings for ports as the command line names them: an interface (`eth1`), one with options
    /// (`eth1?queues=2`), a driver and what it opens (`af_packet:eth1`, `wan=dpdk:0000:03:00.0` with the
    /// name of the interface that Linux gets), or a VLAN of another of them (`eth1.100`). `driver` is for those that name
    /// none.
    ///
    /// # Errors
    /// Says which port is wrong, and what was expected.
    pub(crate) fn of_ports<'a>(
        names: impl IntoIterator<Item = &'a str>,
        driver: Driver,
    ) -> Result<Self, String> {
        let wrong = |(_, message, right): (_, String, String)| {
            let semicolon = if right.is_empty() { "" } else { "; " };
            Err(format!("{message}{semicolon}{right}"))
        };
        let mut settings = Self::default();
        let mut is_open = Vec::new();
        for text in names {
            let (target, options) = ports::split_spec(text);
            // What stands before the first `:` and `=` is a name; behind a `:` the `=` belongs to the device.
            let named = target.split_once('=').filter(|(name, _)| !name.contains(':'));
            let named = named.filter(|_| !ports::is_interface(target));
            let (name, target) = named.map_or((None, target), |(name, target)| (Some(name), target));
            let mut port = PortSettings { driver, ..PortSettings::new(target) };
            port.host = PortSettings::usual_host(driver);
            if let Some((driver, device)) = target.split_once(':') {
                let known = Driver::WORDS.iter().find(|(word, _)| *word == driver);
                port.driver = known.map(|(_, driver)| *driver).ok_or_else(|| {
                    let words: Vec<&str> = Driver::WORDS.iter().map(|(word, _)| *word).collect();
                    format!(
                        "port '{text}': there is no driver '{driver}' for it; expected one of {}",
                        words.join(", ")
                    )
                })?;
                port.host = PortSettings::usual_host(port.driver);
                port.name = match port.driver {
                    _ if name.is_some() => name.unwrap_or_default().to_owned(),
                    // A PCI address is not a name of an interface.
                    Driver::Dpdk => ports::twin_name(device),
                    _ => device.to_owned(),
                };
                port.device = (port.name != device).then(|| device.to_owned());
            }
            if let Some(name) = name.filter(|name| *name != port.name) {
                return Err(format!(
                    "port '{text}': the interface '{}' is Linux's, and goes by its own name, not '{name}'",
                    port.name
                ));
            }
            port.options = options.unwrap_or_default().to_owned();
            is_open.push(target == port.name && port.options.is_empty());
            port.problem().map_or(Ok(()), wrong)?;
            if settings.ports.iter().any(|other| other.name == port.name) {
                return Err(format!("port '{}' is named twice; expected once", port.name));
            }
            settings.ports.push(port);
        }
        let ports = &mut settings.ports;
        vlan::find_vlans(ports, |at| is_open[at]);
        ports.iter().find_map(|port| vlan::problem(port, ports)).map_or(Ok(()), wrong)?;
        Ok(settings)
    }
}
