"""Makes an empty bucket or container: make_bucket.py s3|azure <host:port> <bucket> <user> <key>.

One signed request; that there is one already is as good.
"""

import base64
import hashlib
import hmac
import http.client
import sys
from datetime import datetime, timezone


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def s3(address, bucket, user, key):
    now = datetime.now(timezone.utc)
    time, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": address, "x-amz-content-sha256": empty, "x-amz-date": time}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"PUT\n/{bucket}\n\n{lines}\n{names}\n{empty}"
    scope = f"{day}/us-east-1/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    secret = ("AWS4" + key).encode()
    for part in scope.split("/"):
        secret = sign(secret, part)
    signature = sign(secret, f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}").hex()
    credential = f"AWS4-HMAC-SHA256 Credential={user}/{scope}, SignedHeaders={names}, Signature={signature}"
    return f"/{bucket}", {**headers, "authorization": credential}


def azure(address, bucket, user, key):
    time = datetime.now(timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    path = f"/{user}/{bucket}"
    own = f"x-ms-date:{time}\nx-ms-version:2021-08-06"
    # Azurite's paths begin with the account, so that it stands twice in what is signed.
    text = "PUT" + "\n" * 12 + f"{own}\n/{user}{path}\nrestype:container"
    signature = base64.b64encode(sign(base64.b64decode(key), text)).decode()
    headers = {"x-ms-date": time, "x-ms-version": "2021-08-06", "authorization": f"SharedKey {user}:{signature}"}
    return f"{path}?restype=container", headers


def main(kind, address, bucket, user, key):
    path, headers = {"s3": s3, "azure": azure}[kind](address, bucket, user, key)
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("PUT", path, headers={**headers, "content-length": "0"})
    answer = connection.getresponse()
    body = answer.read().decode(errors="replace")
    if answer.status not in (200, 201, 409):
        sys.exit(f"status {answer.status}: {body}")


main(*sys.argv[1:])
