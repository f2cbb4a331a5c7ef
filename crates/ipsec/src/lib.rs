//! IPsec.
