#!/bin/sh
# Debian's Chromium, which the tests of the page drive, and fonts for it. `make test` goes on without it: the tests of
# the page fail then, and say what is missing.
set -u
if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
	echo "No Chromium, and it can be installed only on Debian or Ubuntu as root: install it, or name one by RAG_TEST_CHROMIUM." >&2
	exit 0
fi
echo "Installing Chromium for the tests of the page; this happens once and takes about a minute."
export DEBIAN_FRONTEND=noninteractive
for attempt in 1 2 3; do
	apt-get -qq -o Acquire::Retries=3 -o APT::Sandbox::User=root update \
		&& apt-get -qq -y -o Acquire::Retries=3 -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 install --no-install-recommends chromium fonts-liberation >/dev/null \
		&& exec chromium --version
	echo "Attempt $attempt failed." >&2
	sleep 5
done
exit 0
