package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	echoStreamLength   = 1024
	echoDatagramLength = 512
)

// echoPayload makes the bytes that every implementation sends on the echoed stream of this number.
func echoPayload(number uint32, length int) []byte {
	payload := binary.BigEndian.AppendUint32(make([]byte, 0, length), number)
	state := number
	for len(payload) < length {
		state = state*1664525 + 1013904223
		payload = append(payload, byte(state>>24))
	}
	return payload[:length]
}

// locate returns the file that a request path names in folder.
func locate(folder, path string) (string, error) {
	relative := strings.TrimPrefix(path, "/")
	if folder == "" || !filepath.IsLocal(relative) {
		return "", fmt.Errorf("the path %q is not served", path)
	}
	return filepath.Join(folder, relative), nil
}

// store keeps and reports what was downloaded.
func store(folder string, connection int, path string, content []byte) error {
	if folder != "" {
		file, err := locate(folder, path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	digest := sha256.Sum256(content)
	emit(fileEvent{"file", connection, path, len(content), hex.EncodeToString(digest[:])})
	return nil
}
