// SPDX-License-Identifier: MIT OR Apache-2.0

//! The server of `server.rs` with tokio: two tasks, one for receiving, one for serving, on one
//! thread.
//!
//! ```text
//! cargo run -p nrs-client --features tokio --example tokio
//! ```

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    process,
    sync::{Arc, Mutex},
};

use nrs_client::{Client, Completion, Nid, Options, Request};
use tokio::{
    io::{unix::AsyncFd, Interest},
    net::UdpSocket,
    runtime::Builder,
};

/// State shared by the tasks.
struct Server {
    client: AsyncFd<Client>,
    socket: UdpSocket,
    /// Datagrams whose requests are not released, by cookie.
    datagrams: Mutex<HashMap<u64, (Vec<u8>, SocketAddr)>>,
}

impl Server {
    /// Submits a request for each datagram.
    async fn receive(&self) -> io::Result<()> {
        for cookie in 0.. {
            let mut data = vec![0; 1500];
            let (length, from) = self.socket.recv_from(&mut data).await?;
            data.truncate(length);
            self.datagrams.lock().unwrap().insert(cookie, (data, from));
            let request = Request::new(cookie).nid(&Nid::from(from.ip()));
            let request = [request.length(length as u64)];
            let submit = |client: &Client| client.submit(&request);
            self.client.async_io(Interest::WRITABLE, submit).await?;
        }
        Ok(())
    }

    /// Serves released requests.
    async fn serve(&self) -> io::Result<()> {
        loop {
            let released = |client: &Client| client.released(16);
            for released in self.client.async_io(Interest::READABLE, released).await? {
                let datagram = self.datagrams.lock().unwrap().remove(&released.cookie);
                let (data, from) = datagram.expect("submitted");
                let sent = self.socket.send_to(&data, from).await.unwrap_or(0);
                let completion = Completion::new(released.cookie, 0, sent as u64);
                self.client.get_ref().complete(&[completion])?;
            }
        }
    }
}

async fn run() -> io::Result<()> {
    let server = Arc::new(Server {
        client: AsyncFd::new(Options::new("echo").nonblocking(true).open()?)?,
        socket: UdpSocket::bind("0.0.0.0:7777").await?,
        datagrams: Mutex::default(),
    });
    let serving = server.clone();
    tokio::spawn(async move {
        let result = serving.serve().await;
        eprintln!("server: {result:?}");
        process::exit(1);
    });
    server.receive().await
}

fn main() -> io::Result<()> {
    Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(run())
}
