//! =c
//! FromSocket(TYPE, IP, PORT [, LOCALIP, LOCALPORT, I<keywords>])
//! FromSocket(TYPE, FILENAME [, LOCALFILENAME, I<keywords>])
//!
//! =s comm
//! receives packets' data from a program over a socket
//!
//! =d
//! A Socket without an input, with the same arguments. It is a server unless CLIENT says otherwise.
//!
//! =e
//!   FromSocket(UDP, 0.0.0.0, 9000) -> ...
//!
//! =a Socket, ToSocket

use graph::Class;

use super::socket::make;

pub(crate) static CLASS: Class = Class {
    name: "FromSocket",
    ports: "0/1",
    processing: "a/h",
    flow: "x/y",
    manual: graph::manual!("from_socket.rs"),
    make,
    ..Class::DEFAULT
};
