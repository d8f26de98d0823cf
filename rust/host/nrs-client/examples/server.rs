// SPDX-License-Identifier: MIT OR Apache-2.0

//! Echoes UDP datagrams in the order that nrs decides.

use std::{collections::HashMap, io, net::UdpSocket, process, sync::Mutex, thread};

use nrs_client::{Completion, Nid, Options, Request};

fn main() -> io::Result<()> {
    let client = Options::new("echo").open()?;
    let socket = UdpSocket::bind("0.0.0.0:7777")?;
    let datagrams = Mutex::new(HashMap::new());
    // Serves what nrs releases.
    let serve = || -> io::Result<()> {
        loop {
            for released in client.released(1)? {
                let datagram = datagrams.lock().unwrap().remove(&released.cookie);
                let (data, from): (Vec<u8>, _) = datagram.expect("submitted");
                let sent = socket.send_to(&data, from).unwrap_or(0);
                client.complete(&[Completion::new(released.cookie, 0, sent as u64)])?;
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let result = serve();
            eprintln!("server: {result:?}");
            process::exit(1);
        });
        for cookie in 0.. {
            let mut data = vec![0; 1500];
            let (length, from) = socket.recv_from(&mut data)?;
            data.truncate(length);
            datagrams.lock().unwrap().insert(cookie, (data, from));
            let request = Request::new(cookie).nid(&Nid::from(from.ip()));
            client.submit(&[request.length(length as u64)])?;
        }
        Ok(())
    })
}
