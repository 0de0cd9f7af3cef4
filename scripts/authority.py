"""An authority of certificates for the hosts of a test or a demonstration, by openssl."""

import pathlib
import subprocess


class Authority:
    """Keeps authority.pem, and issues NAME.pem with NAME.key, all in one folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.openssl("req", "-x509", *self.key("rsa:2048", "authority"), "-subj", "/CN=the site's authority", "-days", "2", "-out", "authority.pem")

    def openssl(self, *words):
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"failed: openssl {words[0]}: {done.stderr}")

    def key(self, kind, name):
        curve = ["-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ec" else []
        return ["-newkey", kind, *curve, "-nodes", "-keyout", f"{name}.key"]

    def issue(self, name, kind, names, usage):
        """`kind` is rsa:2048 or ec (P-256); `names` are as in subjectAltName, and `usage` is serverAuth or clientAuth."""
        (self.folder / "extensions").write_text(f"subjectAltName={names}\nextendedKeyUsage={usage}\nbasicConstraints=critical,CA:FALSE\n")
        self.openssl("req", *self.key(kind, name), "-subj", f"/CN={name}", "-out", "request")
        self.openssl("x509", "-req", "-in", "request", "-CA", "authority.pem", "-CAkey", "authority.key", "-days", "2", "-extfile",
                     "extensions", "-out", f"{name}.pem")
        (self.folder / f"{name}.key").chmod(0o600)
