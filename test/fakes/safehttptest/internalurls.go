package safehttptest

// InternalURLs are spellings of addresses that customers must not reach. A Guard
// without allowed networks rejects each of them before it dials, even if it allows
// plain HTTP.
var InternalURLs = []string{
	// Plain.
	"https://127.0.0.1/", "http://127.0.0.1/", "https://127.0.0.1:8080/", "https://127.255.255.254/", "https://0.0.0.0/", "https://10.0.0.5/",
	"https://172.16.0.1/", "https://172.31.255.255/", "https://192.168.1.1/", "https://100.64.0.1/", "https://169.254.1.1/",
	"https://192.0.0.1/", "https://192.0.2.1/", "https://198.18.0.1/", "https://198.51.100.1/", "https://203.0.113.1/", "https://224.0.0.1/",
	"https://240.0.0.1/", "https://255.255.255.255/",
	// Decimal, hexadecimal, octal and short.
	"https://2130706433/", "http://2852039166/latest/meta-data/", "https://0x7f000001/", "https://0X7F000001/", "https://0xa9fea9fe/", "https://017700000001/",
	"https://0x7f.0.0.1/", "https://0x7f.1/", "https://0177.0.0.1/", "https://0177.1/", "https://127.1/", "https://127.0.1/", "https://10.5/",
	"https://127.0.0.01/", "https://127.0.0.0x1/", "https://0/", "https://00000000.0.0.0/", "https://4294967296/", "https://127.0.0.1.1/",
	// IPv6, and IPv4 inside it: mapped, compatible, NAT64, SIIT, 6to4, Teredo.
	"https://[::1]/", "https://[0:0:0:0:0:0:0:1]/", "https://[::]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[::FFFF:169.254.169.254]/",
	"https://[::127.0.0.1]/", "https://[::ffff:0:127.0.0.1]/", "https://[64:ff9b::127.0.0.1]/", "https://[64:ff9b::a9fe:a9fe]/", "https://[64:ff9b:1::a00:5]/",
	"https://[2002:7f00:1::]/", "https://[2002:a9fe:a9fe::1]/", "https://[2001:0:7f00:1::]/", "https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
	"https://[fc00::1]/", "https://[fd12:3456::1]/", "https://[fec0::1]/", "https://[fe80::1]/", "https://[ff02::1]/", "https://[2001:db8::1]/", "https://[100::1]/",
	// Zones and malformed brackets.
	"https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[::1%25lo]/", "https://[127.0.0.1]/", "https://[::1/",
	// Metadata services.
	"http://169.254.169.254/latest/meta-data/", "https://168.63.129.16/", "https://[fd00:ec2::254]/", "https://169.254.170.2/", "https://100.100.100.200/",
	// Full-width and other digits, dots and letters that some programs fold.
	"https://１２７.０.０.１/", "https://127。0。0。1/", "https://127．0．0．1/", "https://①②⑦.⓪.⓪.①/", "https://ⓛocalhost/", "https://localhoſt/", "https://١٢٧.0.0.1/",
	// Percent-encoded, with a dot at the end, and in other schemes.
	"https://127%2e0%2e0%2e1/", "https://%6c%6f%63%61%6c%68%6f%73%74/", "https://127.0.0.1./", "https://localhost./", "file:///etc/passwd", "gopher://127.0.0.1/", "//127.0.0.1/",
	// Names of this machine.
	"https://localhost/", "https://LocalHost:8443/", "https://a.localhost/",
	// Credentials, fragments, backslashes, white space: parsers disagree about the host.
	"https://example.com@127.0.0.1/", "https://127.0.0.1@example.com/", "https://user:password@10.0.0.5/", "https://example.com#@127.0.0.1/", "https://127.0.0.1#.example.com/",
	`https://example.com\@127.0.0.1/`, `https:\\127.0.0.1\`, "https://127.0.0.1\t/", "https://127.0.0.1 /", "https://127.0.0.1\r\n/", "https://exa\u200bmple.com/",
	"https://127.0.0.1:0/", "https://127.0.0.1:00443/", "https://127.0.0.1:65536/",
}
