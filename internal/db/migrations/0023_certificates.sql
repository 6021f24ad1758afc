-- TLS certificates that the server gets from an ACME directory. All nodes share them.

CREATE TABLE acme_accounts (
  directory  TEXT PRIMARY KEY,
  sealed_key TEXT NOT NULL,
  created_at BIGINT NOT NULL
);

-- Before the first certificate, a row only has the claim of the node that orders it, or the last failure.
CREATE TABLE acme_certificates (
  directory     TEXT NOT NULL,
  domain        TEXT NOT NULL,
  sealed        TEXT,   -- the chain and its private key
  issued_at     BIGINT,
  expires_at    BIGINT,
  renew_at      BIGINT,
  claimed_by    TEXT,   -- the node that orders a certificate
  claimed_until BIGINT,
  failures      BIGINT NOT NULL DEFAULT 0,
  failed_at     BIGINT,
  error         TEXT,
  retry_at      BIGINT,
  PRIMARY KEY (directory, domain)
);

-- Challenges that the directory may check on any node.
CREATE TABLE acme_challenges (
  directory  TEXT NOT NULL,
  domain     TEXT NOT NULL,
  kind       TEXT NOT NULL,
  token      TEXT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (directory, domain, kind)
);
