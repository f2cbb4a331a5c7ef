//! =c
//! ToSocket(TYPE, IP, PORT [, LOCALIP, LOCALPORT, I<keywords>])
//! ToSocket(TYPE, FILENAME [, LOCALFILENAME, I<keywords>])
//!
//! =s comm
//! sends packets' data to a program over a socket
//!
//! =d
//! A Socket without an output, with the same arguments. It is a client unless CLIENT says otherwise.
//!
//! =e
//!   ... -> ToSocket(UDP, 192.0.2.1, 9000);
//!
//! =a Socket, FromSocket

use graph::Class;

use super::socket::make;

pub(crate) static CLASS: Class = Class {
    name: "ToSocket",
    ports: "1/0",
    processing: "a/h",
    flow: "x/y",
    manual: graph::manual!("to_socket.rs"),
    make,
    ..Class::DEFAULT
};
