# services.iottymux.apps.game = [ "--tty" ] makes game.service attachable. The units are written while the
# system is built, by `iottymux units`.
{ config, lib, pkgs, ... }:

let
  cfg = config.services.iottymux;
  program = "${cfg.package}/bin/iottymux";
  write = name: options: ''
    ${program} units --app ${name} --binary ${program} \
      --output $out/lib/systemd/system --seen-as /etc/systemd/system ${lib.escapeShellArgs options}
  '';
  units = pkgs.runCommand "iottymux-units" { } ''
    mkdir -p $out/lib/systemd/system
    ${lib.concatStrings (lib.mapAttrsToList write cfg.apps)}
  '';
in
{
  options.services.iottymux = {
    package = lib.mkOption {
      type = lib.types.package;
      default = pkgs.callPackage ./package.nix { };
      description = "The package of iottymux.";
    };
    apps = lib.mkOption {
      type = lib.types.attrsOf (lib.types.listOf lib.types.str);
      default = { };
      example = { game = [ "--tty" ]; };
      description = "The services that can be attached, with the options of iottymux units for each.";
    };
  };

  config = lib.mkIf (cfg.apps != { }) {
    environment.systemPackages = [ cfg.package ];
    systemd.packages = [ units ];
    users.users.iottymux = {
      isSystemUser = true;
      group = "iottymux";
      description = "Muxes of attachable services";
    };
    users.groups.iottymux = { };
  };
}
