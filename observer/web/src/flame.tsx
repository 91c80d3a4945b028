/* The report's tree as a flame graph: as wide as the time it took, as deep as what it is part
 * of, all at the top. The table of Top-down says the same in words. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { above, type Frame, frameAt, framesOf, matching, type Narrow, type Placed, placeFrames, step } from "./flame_rows";
import { exact } from "./plain";
import { matcher, rowName, sharesBefore } from "./report_rows";
import { percent, type Report, sum, whole } from "./times";
import { plural } from "./words";

const ARROWS = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"]);

/* Where it stands is set on the element: the page has no inline styles. */
function useBox(from: number, share: number, depth: number) {
	const element = useRef<HTMLDivElement>(null);
	useLayoutEffect(() => {
		const { style } = element.current!;
		style.setProperty("--from", String(from));
		style.setProperty("--share", String(share));
		style.setProperty("--depth", String(depth));
	}, [from, share, depth]);
	return element;
}

/* "inclusive 0:38, self 0:12, 4 times, 6.3 %". */
function figures({ row }: Frame, all: number): string {
	const parts = [`inclusive ${sum(row.inclusive)}`];
	if (row.name && row.name !== "All") parts.push(`self ${sum(row.self)}`);
	if (row.name === "All") parts.push(plural(row.count, "lane"));
	else if (!row.agent && !row.lane) parts.push(`${row.count.toLocaleString("en")} ×`);
	parts.push(percent(row.inclusive, all));
	return parts.join(", ");
}

function Box({
	it: { frame, depth, from, share },
	index,
	all,
	tab,
	dim,
	over,
}: {
	it: Placed;
	index: number;
	all: number;
	tab: boolean;
	dim: boolean;
	over: boolean;
}) {
	const { row } = frame;
	const name = rowName(row);
	return (
		<div
			ref={useBox(from, share, depth)}
			role="treeitem"
			aria-level={depth + 1}
			aria-label={`${name}: ${figures(frame, all)}`}
			aria-selected={over}
			class="flame-frame"
			data-index={index}
			data-time={row.time}
			data-name={row.name === "Turn" && !row.time ? "turn" : undefined}
			data-dim={dim || undefined}
			tabIndex={tab ? 0 : -1}
		>
			{row.command ? <code>{exact(name)}</code> : exact(name)}
		</div>
	);
}

function Rest({ it: { count, depth, from, share } }: { it: Narrow }) {
	return (
		<div
			ref={useBox(from, share, depth)}
			class="flame-frame flame-narrow"
			aria-hidden="true"
			title={`${count} too narrow to draw: zoom in`}
		/>
	);
}

export interface FlameProps {
	report: Report;
	before: Report | null;
	filter: string;
	zoom: string;
	onZoom: (path: string) => void;
}

export function Flame({ report, before, filter, zoom, onZoom }: FlameProps) {
	const all = whole(report.total);
	const root = useMemo(() => framesOf(report), [report]);
	const at = useMemo(() => frameAt(root, zoom), [root, zoom]);
	const { placed, narrow, depth } = useMemo(() => placeFrames(at), [at]);
	const shares = useMemo(() => (before ? sharesBefore("top-down", before) : null), [before]);
	const found = useMemo(() => matcher(filter), [filter]);
	const [hovered, setHovered] = useState<string | null>(null);
	const [focused, setFocused] = useState<string | null>(null);
	const tree = useRef<HTMLDivElement>(null);
	const holds = useRef(false); /* the tree has the focus */

	const indexOf = (path: string | null) =>
		path === null ? -1 : placed.findIndex(({ frame }) => frame.path === path);
	/* Where Tab leads: to the frame that had the focus, to what it is part of if that is not
	 * drawn now, or to the one that is zoomed into. */
	let near: Frame | null = focused === null ? at : frameAt(root, focused);
	while (near && indexOf(near.path) < 0) near = near.parent;
	const tab = Math.max(0, indexOf(near?.path ?? at.path));
	const told = (placed[indexOf(hovered)] ?? placed[tab]!).frame;

	const elements = () => tree.current!.querySelectorAll<HTMLElement>("[role=treeitem]");
	useLayoutEffect(() => {
		tree.current!.style.setProperty("--rows", String(depth));
		/* The frame that had the focus is not drawn any more: what it is part of has it. */
		if (holds.current && indexOf(focused) < 0 && !tree.current!.contains(document.activeElement))
			elements()[tab]?.focus({ preventScroll: true });
	});
	useEffect(() => () => { holds.current = false; }, []);

	const indexIn = (event: Event) => {
		const box = (event.target as HTMLElement).closest<HTMLElement>("[data-index]");
		return box ? Number(box.dataset.index) : -1;
	};
	/* The frame that has the whole width already: back to what it is part of. */
	const open = (frame: Frame) => onZoom((frame === at ? (frame.parent ?? frame) : frame).path);

	const keyDown = (event: KeyboardEvent) => {
		const index = indexIn(event);
		if (index < 0 || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
		if (ARROWS.has(event.key)) elements()[step(placed, index, event.key)]!.focus();
		else if (event.key === "Enter" || event.key === " ") open(placed[index]!.frame);
		else return;
		event.preventDefault();
	};

	const hits = filter ? matching(root, found) : null;
	const over = root.width - all;
	return (
		<div class="flame">
			<p class="flame-told">
				<b>{told.row.command ? <code>{exact(rowName(told.row))}</code> : exact(rowName(told.row))}</b>
				<span>{figures(told, all)}</span>
				{shares && told.parent ? (
					<span class="quiet">was {percent(shares.get(told.path) ?? 0, 1)}</span>
				) : null}
				<span class="quiet flame-way">
					{exact(above(told).slice(1).map(({ row }) => rowName(row)).join(" › "))}
				</span>
			</p>
			<div
				ref={tree}
				class="flame-graph"
				role="tree"
				aria-label="Flame graph: as wide as the time it took"
				onClick={(event) => {
					const index = indexIn(event);
					if (index >= 0) open(placed[index]!.frame);
				}}
				onKeyDown={keyDown}
				onPointerOver={(event) => setHovered(placed[indexIn(event)]?.frame.path ?? null)}
				onPointerLeave={() => setHovered(null)}
				onFocusIn={(event) => {
					holds.current = true;
					setFocused(placed[indexIn(event)]?.frame.path ?? null);
				}}
				onFocusOut={(event) => {
					const from = event.target as Node;
					if (event.relatedTarget) holds.current = tree.current!.contains(event.relatedTarget as Node);
					/* Unless it went because its frame is no more. */
					else queueMicrotask(() => { if (from.isConnected) holds.current = false; });
				}}
			>
				{placed.map((it, index) => (
					<Box
						key={it.frame.path}
						it={it}
						index={index}
						all={all}
						tab={index === tab}
						dim={!!filter && !(it.frame.parent && found(it.frame.row))}
						over={it.frame === told}
					/>
				))}
				{narrow.map((it) => (
					<Rest key={`narrow ${it.path}`} it={it} />
				))}
			</div>
			<p class="quiet flame-note">
				{hits
					? `${plural(hits.count, "frame")} with these words: ${sum(hits.ms)}, ${percent(hits.ms, all)}. `
					: ""}
				{over > 50 ? `Widths are sums: ${sum(over)} ran side by side. ` : ""}
				{at.parent ? "Esc shows all again." : ""}
			</p>
		</div>
	);
}
