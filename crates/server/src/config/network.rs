//! Networks by their addresses: `192.0.2.7`, `10.0.0.0/8`, `2001:db8::/32`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address, or all that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// What is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotANetwork;

impl Network {
    /// Whether an address is in it.
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let apart = own.to_bits() ^ other.to_bits();
                apart.leading_zeros() >= self.bits
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let apart = own.to_bits() ^ other.to_bits();
                apart.leading_zeros() >= self.bits
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Network, NotANetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= bits_max).ok_or(NotANetwork)?,
            None => bits_max,
        };
        Ok(Network { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_the_addresses_that_begin_as_it_does() {
        for (network, within, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("192.0.2.7", "::ffff:192.0.2.7", "::192.0.2.7"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("::1", "::1", "::2"),
        ] {
            let found: Network = network.parse().unwrap();
            assert!(found.holds(within.parse().unwrap()), "{network} {within}");
            assert!(!found.holds(outside.parse().unwrap()), "{network} {outside}");
            assert_eq!(found.to_string().parse(), Ok(found));
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0", "::/129", "10.0.0.0/", "10.0.0.0/-1", "example.com"] {
            assert_eq!(wrong.parse::<Network>(), Err(NotANetwork), "{wrong}");
        }
    }
}
