// wireguard-go as one end of the benchmark's tunnel: its device, without the socket for wg(8).
//
// Arguments: the name of the device, its MTU, and the configuration as wg(8) would set it
// (www.wireguard.com/xplatform, lines joined by commas). It runs until its standard input ends.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

func run(name, mtu, configuration string) error {
	bytes, err := strconv.Atoi(mtu)
	if err != nil {
		return err
	}
	made, err := tun.CreateTUN(name, bytes)
	if err != nil {
		return err
	}
	end := device.NewDevice(made, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, ""))
	defer end.Close()
	if err := end.IpcSet(strings.ReplaceAll(configuration, ",", "\n") + "\n"); err != nil {
		return err
	}
	if err := end.Up(); err != nil {
		return err
	}
	fmt.Println(`"ready"`)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: DEVICE MTU CONFIGURATION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
