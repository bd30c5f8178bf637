//! Which process of this machine opened a connection of loopback, by what the kernel tells in `/proc` (proc(5), tcp tables).
//! Must not know why anybody asks.

use std::fs;
use std::net::{IpAddr, SocketAddr};

/// Where the table has a socket's own address, and its inode.
const LOCAL_ADDRESS: usize = 1;
const INODE: usize = 9;

/// Whether a process, by its id, holds the socket with this IPv4 address at its own end. False where either is gone.
pub(super) fn opened(process: u32, from: SocketAddr) -> bool {
    let Ok(table) = fs::read_to_string("/proc/net/tcp") else { return false };
    let Some(inode) = inode(&table, from) else { return false };
    let socket = format!("socket:[{inode}]");
    let held = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    held.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target.as_os_str() == socket.as_str())
}

/// The inode of the socket with this address, in a table of `/proc/net/tcp`. Addresses stand there in the machine's byte order.
fn inode(table: &str, address: SocketAddr) -> Option<&str> {
    let IpAddr::V4(ip) = address.ip() else { return None };
    let wanted = format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port());
    table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find_map(|line| {
        let inode = *line.get(INODE)?;
        // A socket that is closed belongs to nobody: inode 0.
        (*line.get(LOCAL_ADDRESS)? == wanted && inode != "0").then_some(inode)
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_its_own_processs_and_no_others() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, from) = listener.accept().unwrap();
        assert!(opened(std::process::id(), from));
        // The parent has none of it, and of the first process nobody may know.
        assert!(!opened(std::os::unix::process::parent_id(), from));
        drop(client);
        assert!(!opened(std::process::id(), from));
    }
}
